"""A tuned route as files to deploy, and as commands for people who use trtexec."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from routecast.datasets.route import Route
from routecast.tuner.backends.tensorrt.knobs import build_route

_TILING = {"none": "0", "fast": "1", "moderate": "2", "full": "3"}
_FLAGS = {
    "builder.optimization_level": "--builderOptimizationLevel",
    "builder.aux_streams": "--maxAuxStreams",
    "builder.max_tactics": "--maxTactics",
}


def export(artifact: Path, route: Route, folder: Path) -> Path:
    """Writes the engine, the rewritten model it was built from, and how trtexec would build it again.

    Ship the engine, not the route: building again reproduces neither bytes nor timing.
    """
    target = folder / "model.engine"
    shutil.copyfile(artifact, target)
    for file in sorted(artifact.parent.glob("model.onnx*")):
        shutil.copyfile(file, folder / file.name)
    (folder / "build_route.txt").write_text(build_route(route) + "\n")
    (folder / "trtexec.txt").write_text(shlex.join(trtexec_command(route)) + "\n")
    return target


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


def route_file(routes: Sequence[Route]) -> str:
    """A ``--tuneBuildRouteFile`` of ranked routes, one a line; those without compiler knobs are left out."""
    lines = dict.fromkeys(build_route(route) for route in routes)
    return "".join(f"{line}\n" for line in lines if line)
