from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import pytest

from routecast.costmodel.baseline_view import BaselineView
from routecast.costmodel.baselines import Errors
from routecast.datasets.environment import Environment
from routecast.datasets.graph import Graph, Node, Tensor
from routecast.datasets.measurement import Measurement, Status
from routecast.datasets.route import Knob, Route, RouteSpace

EFFECTS = {
    ("precision.kind", "int8"): -0.60,
    ("precision.kind", "dynamic"): -0.10,
    ("precision.keep", "first"): 0.05,
    ("session.threads", "1"): 0.50,
    ("session.threads", "2"): -0.10,
    ("session.spin", "off"): -0.03,
    ("graph.level", "basic"): 0.20,
    ("graph.level", "off"): 0.60,
    ("pass.slim", "on"): -0.05,
    ("pass.gelu", "on"): -0.08,
    ("session.arena", "off"): 0.02,
    ("session.pattern", "off"): 0.01,
}


def _space() -> RouteSpace:
    return RouteSpace(
        (
            Knob("precision.keep", ("none", "first"), "none", requires={"precision.kind": ("int8",)}),
            Knob("precision.kind", ("float", "dynamic", "int8"), "float", changes_numerics=True),
            Knob("session.threads", ("0", "1", "2"), "0"),
            Knob("session.spin", ("on", "off"), "on"),
            Knob("graph.level", ("all", "basic", "off"), "all"),
            Knob("pass.slim", ("off", "on"), "off"),
            Knob("pass.gelu", ("off", "on"), "off"),
            Knob("session.arena", ("on", "off"), "on"),
            Knob("session.pattern", ("on", "off"), "on"),
        )
    )


def true_log_ratio(route: Route) -> float:
    """Additive effects and one interaction: two passes together cost what they gain alone."""
    interaction = 0.14 if {"pass.slim", "pass.gelu"} <= set(route) else 0.0
    return sum(EFFECTS[setting] for setting in route.items()) + interaction


@dataclass(frozen=True)
class Lab:
    """Measures routes of a synthetic space exactly; routes that hold a broken setting are inaccurate."""

    space: RouteSpace
    broken: frozenset[tuple[str, str]] = frozenset()

    def measure(self, routes: Iterable[Route]) -> list[Measurement]:
        return [self._one(route) for route in routes]

    def _one(self, route: Route) -> Measurement:
        status = Status.INACCURATE if self.broken & set(route.items()) else Status.OK
        return Measurement("f", route, "e", status, ratio=math.exp(true_log_ratio(route)))

    def routes(self) -> list[Route]:
        """Every route but the default."""
        found = {Route()}
        frontier = [Route()]
        while frontier:
            frontier = [*{new for base in frontier for new in self.space.single_changes(base)} - found]
            found.update(frontier)
        return sorted(found - {Route()}, key=str)


ERRORS = Errors(std=0.1, reach=0.16)


@dataclass(frozen=True)
class Effects:
    """A cost model that believes in given additive effects and risks; its latencies do not matter."""

    effects: dict[tuple[str, str], float]
    failure_of: dict[tuple[str, str], float] = field(default_factory=dict)
    route_errors: Errors = ERRORS
    default_errors: Errors = ERRORS
    backends: frozenset[str] = frozenset(("onnxruntime",))
    build_seconds: float = 1.0
    gap: float = 0.0

    def log_ratio(self, graph, environment, routes):
        return np.array([sum(self.effects.get(s, 0.0) for s in route.items()) for route in routes])

    def log_default(self, graph, environment):
        return 0.0

    def failure(self, graph, environment, routes):
        return np.array([1 - math.prod(1 - self.failure_of.get(s, 0.01) for s in r.items()) for r in routes])


@pytest.fixture
def lab() -> Lab:
    return Lab(_space())


@pytest.fixture
def make_view() -> Callable[..., BaselineView]:
    """Makes a view that knows the additive effects, and learns the rest as the real ones do."""

    def make(*, backend: str = "onnxruntime", **options: object) -> BaselineView:
        graph = Graph((Node("Relu", "r", (0,), (1,)),), (Tensor((4,), "float32"),) * 2, (0,), (1,), 17)
        effects = Effects(**{"effects": dict(EFFECTS), **options})  # type: ignore[arg-type]
        return BaselineView(effects, graph, Environment(backend, "1", "cpu"))

    return make
