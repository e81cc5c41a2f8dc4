"""ONNX Runtime on the processor: the backend that works wherever Python does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import onnx

from routecast.datasets.environment import Environment
from routecast.datasets.model import Model
from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.backends.base import Artifact, Backend, BuildFailed, BuildRequest, Check, one_line
from routecast.tuner.backends.onnxruntime.environment import cpu_checks, cpu_environment
from routecast.tuner.backends.onnxruntime.export import export
from routecast.tuner.backends.onnxruntime.knobs import Machine, session_space
from routecast.tuner.backends.onnxruntime.sessions import OnnxRuntimeExecutable
from routecast.tuner.passes.pipeline import run_passes
from routecast.tuner.passes.registry import get_passes
from routecast.tuner.space import join_spaces, without_numerics


class OnnxRuntimeBackend(Backend):
    """Graph passes and quantisation at build time, session options and single optimisers at load time."""

    name: ClassVar[str] = "onnxruntime"
    preload: ClassVar[tuple[str, ...]] = ("numpy", "onnx", "onnxruntime")
    pins_threads: ClassVar[bool] = True

    def __init__(self, machine: Machine | None = None) -> None:
        """Takes the machine to plan for, this one by default."""
        self._machine = machine or Machine.here()
        self._passes = get_passes(("onnxslim", "onnxscript", "transformers", "precision"))

    def environment(self) -> Environment:
        """This machine and the versions of what changes a build here."""
        return cpu_environment(self.name)

    def space(self, model: Model, *, allow_numerics: bool = True) -> RouteSpace:
        """Precision, passes, session options and single optimisers that can matter to the model."""
        graph = model.graph
        passes = [graph_pass.space(graph) for graph_pass in reversed(self._passes)]
        space = join_spaces(*passes, session_space(graph, self._machine))
        return space if allow_numerics else without_numerics(space)

    def build(self, request: BuildRequest) -> Artifact:
        """Runs the passes that the route asks for; without any, the artifact is the model's own file.

        Raises:
            BuildFailed: a pass failed; the message names it.
        """
        start = time.perf_counter()
        target = request.folder / "model.onnx"
        try:
            built = run_passes(request.model, target, request.route, self._passes, request.calibration)
        except Exception as error:  # a library's failure on this graph is this route's failure
            raise BuildFailed(one_line(error)) from error
        path = built or request.model
        seconds = time.perf_counter() - start
        return Artifact.of(path, seconds, external_files(path))

    def load(self, artifact: Artifact, route: Route, model: Path, *, profiling: bool = False) -> OnnxRuntimeExecutable:
        """Makes a session with the route's options."""
        return OnnxRuntimeExecutable(artifact.path, route, model if profiling else None)

    def export(self, artifact: Path, route: Route, folder: Path) -> Path:
        """Writes the model and a loader that sets the route's session options."""
        return export(artifact, external_files(artifact), route, folder)

    def checks(self) -> list[Check]:
        """Versions, and whether a session runs."""
        return cpu_checks()


def external_files(path: Path) -> list[Path]:
    """The files that hold a model's external weights."""
    model = onnx.load(path, load_external_data=False)
    return sorted({path.parent / location for location in _locations(model.graph)})


def _locations(graph: onnx.GraphProto) -> Iterator[str]:
    for tensor in graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield from (entry.value for entry in tensor.external_data if entry.key == "location")
