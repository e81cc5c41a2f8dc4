"""A recorded table instead of a device: strategies are tried on it exactly and in seconds.

It measures nothing, so it is no ``Backend``: it only looks up what was measured of a route.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.graph import Graph
from routecast.datasets.measurement import Measurement, Purpose
from routecast.datasets.records import Records
from routecast.datasets.route import Knob, Route, RouteSpace

if TYPE_CHECKING:
    from routecast.tuner.search.base import Strategy

DEFAULT = "default"
"""Stands for the default value of a knob: a history holds only what routes change."""


@dataclass(frozen=True)
class ReplayTable:
    """What was measured of one model in one environment.

    Attributes:
        model, family: name and architecture family.
        graph, environment: what a cost model needs to predict it.
        measurements: by route, the default route not among them; of several the last explored one.
    """

    model: str
    family: str
    graph: Graph
    environment: Environment
    measurements: dict[Route, Measurement]

    @property
    def routes(self) -> list[Route]:
        """The routes that can be measured."""
        return list(self.measurements)

    @cached_property
    def space(self) -> RouteSpace:
        """A space of the knobs and values that occur."""
        values: dict[str, dict[str, None]] = {}
        for route in self.measurements:
            for name, value in route.items():
                values.setdefault(name, {})[value] = None
        return RouteSpace(tuple(Knob(name, (DEFAULT, *found), DEFAULT) for name, found in sorted(values.items())))

    @property
    def best(self) -> float:
        """The least ratio of all ok routes and the default route."""
        return best_ratio(self.measurements.values())

    def measure(self, route: Route) -> Measurement:
        """Looks up a route.

        Raises:
            UsageError: it was not recorded.
        """
        try:
            return self.measurements[route]
        except KeyError:
            raise UsageError(
                f"route {route.label()} of {self.model} was not recorded: choose one of {len(self.routes)}"
            ) from None


def replay_tables(records: Records, at_least: int = 1) -> list[ReplayTable]:
    """The table of each model and environment that has ``at_least`` routes, in the order of the records."""
    found: dict[tuple[str, str], dict[Route, Measurement]] = {}
    for item in records.measurements:
        if item.purpose is Purpose.EXPLORE and not item.route.is_default and item.fingerprint in records.graphs:
            found.setdefault((item.fingerprint, item.environment), {})[item.route] = item
    tables = []
    for (fingerprint, environment), measurements in found.items():
        if len(measurements) >= at_least and environment in records.environments:
            first = next(iter(measurements.values()))
            graph, device = records.graphs[fingerprint], records.environments[environment]
            tables.append(ReplayTable(first.model, first.family, graph, device, measurements))
    return tables


def replay_search(strategy: Strategy, table: ReplayTable, builds: int, rounds: int = 4) -> list[Measurement]:
    """Runs a strategy as a tune would, with measurements from the table.

    The strategy must be made with the table's routes as its candidates, unless the table holds the whole
    space.

    Args:
        strategy: new, made for ``table.space``.
        table: what answers.
        builds: how many routes to measure.
        rounds: in how many rounds they are asked for.

    Returns:
        What was measured, in order; fewer than ``builds`` when the strategy has no more to ask.

    Raises:
        UsageError: the strategy asks for a route that was not recorded.
    """
    done: list[Measurement] = []
    per_round = math.ceil(builds / rounds)
    while len(done) < builds:
        routes = strategy.ask(min(per_round, builds - len(done)))
        if not routes:
            break
        measured = [table.measure(route) for route in routes]
        strategy.tell(measured)
        done += measured
    return done


def best_ratio(measurements: Iterable[Measurement]) -> float:
    """The least ratio of those that are ok, 1 when none beats the default route."""
    return min([1.0, *(item.ratio for item in measurements if item.ok and item.ratio is not None)])


def regret(measured: Sequence[Measurement], table: ReplayTable) -> float:
    """How much slower the best of what was measured is than the best of the table: 0 is best."""
    return best_ratio(measured) / table.best - 1
