from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from routecast.costmodel.base import ModelView, Predictions
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
            frontier = [new for base in frontier for new in self.space.single_changes(base) if new not in found]
            found.update(frontier)
        return sorted(found - {Route()}, key=str)


@dataclass(frozen=True)
class FakeView(ModelView):
    """Knows additive effects with errors of its own, and corrects settings it has seen alone."""

    effects: dict[tuple[str, str], float]
    std: float = 0.05
    failure: dict[tuple[str, str], float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    told: tuple[Measurement, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.notes

    def predict(self, routes: Sequence[Route]) -> Predictions:
        failed = {setting for item in self.told if not item.ok for setting in item.route.items()}
        worked = {setting for item in self.told if item.ok for setting in item.route.items()}
        risk = {**self.failure, **dict.fromkeys(self.failure.keys() & failed - worked, 0.95)}
        mean = np.array([sum(self.effects.get(s, 0.0) for s in route.items()) for route in routes])
        works = np.array([math.prod(1 - risk.get(s, 0.0) for s in route.items()) for route in routes])
        std = np.full(len(routes), self.std)
        low, high = np.exp(mean - 2 * std), np.exp(mean + 2 * std)
        seconds = np.ones(len(routes))
        return Predictions(
            tuple(routes), mean, std, low, high, 1 - works, seconds, 1.0, 0.5, 2.0, np.zeros(0), 0.0
        )

    def adapt(self, measurements: Sequence[Measurement]) -> ModelView:
        return replace(self, told=tuple(measurements))


@pytest.fixture
def lab() -> Lab:
    return Lab(_space())


@pytest.fixture
def make_view() -> Callable[..., FakeView]:
    def make(**options: object) -> FakeView:
        return FakeView(**{"effects": dict(EFFECTS), **options})  # type: ignore[arg-type]

    return make
