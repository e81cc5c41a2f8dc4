"""How compiler knobs reach the compiler: an official property, or the environment variable that RTX reads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from routecast.datasets.route import Route
from routecast.tuner.backends.base import BuildFailed
from routecast.tuner.backends.tensorrt.knobs import build_route

VARIABLE = "__LUNOWUD"
OPT_IN = "ROUTECAST_RTX_COMPILER_KNOBS"
REASON = (
    f"TensorRT-RTX ignores build routes; its compiler reads knobs from the environment variable {VARIABLE}, "
    "which NVIDIA's open sources use and its documentation does not mention"
)


def opted_in() -> bool:
    """Whether the user asked for RTX's compiler knobs."""
    return os.environ.get(OPT_IN, "") not in ("", "0")


def set_build_route(config: Any, route: Route) -> None:
    """Sets the property of TensorRT 11.1 and later.

    Raises:
        BuildFailed: the compiler did not take the route; the Python setter itself says nothing.
    """
    wanted = build_route(route)
    if not wanted:
        return
    config.build_route = wanted
    if sorted(str(config.build_route).split()) != sorted(wanted.split()):
        raise BuildFailed(f"the compiler refused the build route {wanted!r}, it kept {config.build_route!r}")


@contextlib.contextmanager
def compiler_environment(route: Route) -> Iterator[None]:
    """Sets the variable while a route is built or loaded: the compiler reads it anew for each network.

    Raises:
        BuildFailed: the route has compiler knobs and the user did not ask for them.
    """
    wanted = build_route(route)
    if wanted and not opted_in():
        raise BuildFailed(f"compiler knobs on TensorRT-RTX are experimental, set {OPT_IN}=1 to use them: {REASON}")
    before = os.environ.pop(VARIABLE, None)
    try:
        if wanted:
            os.environ[VARIABLE] = wanted
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before
