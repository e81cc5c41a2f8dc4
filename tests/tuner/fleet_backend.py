"""ONNX Runtime as the nodes of a test's cluster see it: each node may call its device by another name."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.backends.base import BuildRequest
from routecast.tuner.backends.onnxruntime.backend import OnnxRuntimeBackend

LABEL = "ROUTECAST_TEST_DEVICE"
LOG = "ROUTECAST_TEST_LOG"
FAULTS = ("none", "hangs", "kills_worker", "lies")


class Labelled(OnnxRuntimeBackend):
    """Its device is what the node's environment says; routes may be told to go wrong."""

    name = "fleet_backend:Labelled"

    def environment(self):
        return replace(super().environment(), device=os.environ.get(LABEL, "driver"))

    def space(self, model, *, allow_numerics=True):
        real = super().space(model, allow_numerics=allow_numerics)
        return RouteSpace((Knob("fault.kind", FAULTS, "none", stage="build"), *real.knobs), real.left_out)

    def build(self, request: BuildRequest):
        fault = request.route.get("fault.kind")
        if fault == "hangs":
            time.sleep(600)
        if fault == "kills_worker":
            zygote = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(zygote.rpartition(")")[2].split()[1]), signal.SIGKILL)
            time.sleep(60)
        with Path(os.environ[LOG]).open("a") as log:
            log.write(f"{os.environ[LABEL]} {request.route.label()}\n")
        return super().build(replace(request, route=_clean(request.route)))

    def load(self, artifact, route, model, *, profiling=False):
        return super().load(artifact, _clean(route), model, profiling=profiling)


class Portable(Labelled):
    """Measures where there is a GPU (it does not use it), and may be built anywhere."""

    name = "fleet_backend:Portable"
    uses_gpu = True
    portable_builds = True


def _clean(route: Route) -> Route:
    return Route({name: value for name, value in route.items() if name != "fault.kind"})
