"""An ONNX Runtime backend whose routes can be told to go wrong, to see that the parent survives."""

import ctypes
import time
from pathlib import Path

import numpy as np

from routecast.datasets.route import Knob, RouteSpace
from routecast.tuner.backends.base import Artifact, BuildFailed, BuildRequest, Executable, LoadFailed
from routecast.tuner.backends.onnxruntime.backend import OnnxRuntimeBackend

FAULTS = (
    "none", "build_fails", "build_segfaults", "build_exits", "load_fails", "load_hangs", "memory", "nan", "wrong",
    "waits",
)  # fmt: skip
WAITED_S = 3.0


class FaultyBackend(OnnxRuntimeBackend):
    name = "faulty_backend:FaultyBackend"
    preload = ("onnxruntime",)
    compiles_at_load = frozenset({"fault"})  # some faults spoil the loading of a sound artifact

    def report_waits(self, waiting):
        self.waiting = waiting

    def space(self, model, *, allow_numerics=True):
        real = super().space(model, allow_numerics=allow_numerics)
        return RouteSpace((Knob("fault.kind", FAULTS, "none", stage="build"), *real.knobs), real.left_out)

    def build(self, request: BuildRequest) -> Artifact:
        fault = request.route.get("fault.kind")
        if fault == "build_fails":
            raise BuildFailed("the builder said no")
        if fault == "build_segfaults":
            ctypes.string_at(0)
        if fault == "build_exits":
            raise SystemExit(3)
        return super().build(_without_fault(request))

    def load(self, artifact, route, model: Path, *, profiling=False) -> Executable:
        fault = route.get("fault.kind")
        if fault == "load_fails":
            raise LoadFailed("the loader said no")
        if fault == "load_hangs":
            time.sleep(600)
        if fault == "waits":  # for a device that another process holds
            with self.waiting():
                time.sleep(WAITED_S)
        if fault == "memory":
            hoard = [np.ones(1 << 27) for _ in range(40)]
            time.sleep(60)
            del hoard
        loaded = super().load(artifact, _clean(route), model, profiling=profiling)
        if fault in ("nan", "wrong"):
            run = loaded.run
            factor = np.nan if fault == "nan" else -1.0
            loaded.run = lambda inputs: {name: value * factor for name, value in run(inputs).items()}
        return loaded


def _clean(route):
    return type(route)({name: value for name, value in route.items() if name != "fault.kind"})


def _without_fault(request: BuildRequest) -> BuildRequest:
    return BuildRequest(request.model, _clean(request.route), request.folder, request.calibration, request.node_names)
