"""A tuned route as files to deploy, and as commands for people who use trtexec."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import onnx

from routecast.datasets.route import Route
from routecast.tuner.backends.tensorrt.knobs import build_route

_PASS_GROUPS = ("precision", "form", "pass")
_TILING = {"none": "0", "fast": "1", "moderate": "2", "full": "3"}
_FLAGS = {
    "builder.optimization_level": "--builderOptimizationLevel",
    "builder.aux_streams": "--maxAuxStreams",
    "builder.max_tactics": "--maxTactics",
}


def export(artifact: Path, route: Route, folder: Path) -> Path:
    """Writes the engine, the model it was built from, and how trtexec would build it again.

    Ship the engine, not the route: building again reproduces neither bytes nor timing.
    """
    target = folder / "model.engine"
    shutil.copyfile(artifact, target)
    for file in sorted(artifact.parent.glob("model.onnx*")):
        shutil.copyfile(file, folder / file.name)
    (folder / "build_route.txt").write_text(build_route(route) + "\n")
    (folder / "trtexec.txt").write_text(trtexec_text(route, folder / "model.onnx"))
    return target


def trtexec_text(route: Route, model: Path) -> str:
    """The trtexec command for a route, with comments on what stands in the model and what trtexec cannot say."""
    passes = {name: value for name, value in route.items() if name.split(".")[0] in _PASS_GROUPS}
    if passes:
        notes = [f"{model.name} is the network after these passes: {Route(passes)}"]
    else:
        notes = [f"{model.name} is the network as it was given, at fixed input shapes: the route has no passes"]
    if route.get("builder.attention") != "dedicated" and _has_attention(model):
        notes.append("trtexec cannot let an Attention be taken apart, as this build did; in fp32 it may find no kernel")
    notes.append("building again gives neither the same bytes nor the same times: ship the engine")
    return "".join(f"# {note}\n" for note in notes) + shlex.join(trtexec_command(route, model.name)) + "\n"


def _has_attention(model: Path) -> bool:
    proto = onnx.load(model, load_external_data=False)
    return any(node.op_type == "Attention" for node in proto.graph.node)


def trtexec_command(route: Route, model: str = "model.onnx", engine: str = "model.engine") -> list[str]:
    """The trtexec 11 command for a route; precision and graph form are in the model already."""
    command = ["trtexec", f"--onnx={model}", f"--saveEngine={engine}"]
    if compiler := build_route(route):
        command.append(f"--setBuildRoute={compiler}")
    command += [f"{flag}={route[name]}" for name, flag in _FLAGS.items() if route.get(name, "auto") != "auto"]
    if tiling := route.get("builder.tiling"):
        command.append(f"--tilingOptimizationLevel={_TILING[tiling]}")
    if route.get("builder.tf32") == "off":
        command.append("--noTF32")
    if route.get("runtime.cuda_graph") == "off":
        command.append("--noCudaGraph")
    return command
