"""Collecting history: measures many routes of many networks, and goes on where an earlier run stopped."""

from __future__ import annotations

import tempfile
import time
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from routecast.datasets.environment import Environment
from routecast.datasets.errors import RoutecastError
from routecast.datasets.measurement import Measurement, Purpose
from routecast.datasets.model import Model, open_model
from routecast.datasets.records import Records
from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.backends.base import Backend
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.measure.runner import Limits
from routecast.tuner.measure.timing import TimingConfig
from routecast.tuner.measure.workbench import EXPLORE, BenchConfig, Workbench
from routecast.tuner.results import Observer, best_of

if TYPE_CHECKING:
    from routecast.datasets.history import History
    from routecast.datasets.journal import Journal
    from routecast.datasets.zoo import Network

SINGLE_CHANGES = 0.4
CHANGES = (2, 5)
# Where half precision is offered nearly every user takes it, so most routes are measured on top of it.
USUAL = Route({"precision.policy": "fp16"})
USUAL_SHARE = 0.75


@dataclass(frozen=True)
class CollectSummary:
    """What a collection did.

    Attributes:
        measured: number of measurements made.
        ok: how many of them are ok.
        skipped: networks that could not be measured at all, with the reason.
        seconds: wall-clock time.
    """

    measured: int
    ok: int
    skipped: dict[str, str]
    seconds: float


@dataclass(frozen=True)
class CollectConfig:
    """How to collect.

    Attributes:
        backend: what builds and runs.
        per_network: routes per network, the A/A control not counted.
        seed: of the choice of routes and of inputs.
        timeout_s: of one route, in seconds.
        minutes: no new route is begun after this time; None sets no limit.
        timing: how to time a route.
    """

    backend: str = "onnxruntime"
    per_network: int = 42
    seed: int = 0
    timeout_s: float = 60.0
    minutes: float | None = None
    timing: TimingConfig = EXPLORE


def plan(space: RouteSpace, count: int, seed: int) -> list[Route]:
    """Chooses the routes to measure: two fifths change one knob, the others two to five.

    The knobs to change are drawn group by group (see ``_changed``). Where the space offers fp16, that route is among
    them, and three quarters of the others are changes of it, since that is where people start from. The order is
    random, so that a collection cut short still holds every kind.
    """
    rng = np.random.default_rng(seed)
    start = USUAL if _offers(space, USUAL) else Route()
    found = {Route(): None, start: None}
    for goal, (low, high) in ((1 + round(SINGLE_CHANGES * count), (1, 1)), (1 + count, CHANGES)):
        for _ in range(50 * count):
            if len(found) >= goal:
                break
            route = start if rng.random() < USUAL_SHARE else Route()
            for _ in range(int(rng.integers(low, high + 1))):
                route = _changed(space, route, rng)
            found[route] = None
    routes = list(found)[1 : 1 + count]
    rng.shuffle(routes)  # type: ignore[arg-type]  # a list of anything will do
    return routes


def _offers(space: RouteSpace, route: Route) -> bool:
    return all(name in space.by_name and value in space.by_name[name].values for name, value in route.items())


def _changed(space: RouteSpace, route: Route, rng: np.random.Generator) -> Route:
    """The route with one more knob changed, the same route when none is left.

    First a group is drawn, in proportion to the logarithm of the number of changes it offers: a hundred compiler knobs
    must not crowd out a few kinds of precision, nor a single switch be in every second route. Then a knob of the group
    and a value, uniformly.
    """
    groups: dict[str, dict[str, list[Route]]] = {}
    for other in space.single_changes(route):
        if route.items() <= other.items():
            (name,) = other.keys() - route.keys()
            groups.setdefault(space.by_name[name].group, {}).setdefault(name, []).append(other)
    if not groups:
        return route
    weights = np.log2([1 + sum(map(len, knobs.values())) for knobs in groups.values()])
    knobs = list(groups.values())[rng.choice(len(groups), p=weights / weights.sum())]
    values = list(knobs.values())[rng.integers(len(knobs))]
    return values[rng.integers(len(values))]


def collect(
    networks: Sequence[Network],
    store: History | Journal,
    config: CollectConfig | None = None,
    observer: Observer | None = None,
    known: Records | None = None,
) -> CollectSummary:
    """Measures routes of each network and stores every measurement as it exists.

    What the store already holds for the same network, route and kind of device is not measured again, nor is what
    ``known`` holds, such as the history of other hosts.
    """
    config, observer = config or CollectConfig(), observer or Observer()
    held = store.records().merged(known or Records())
    collection = _Collection(store, held, get_backend(config.backend), config, observer)
    observer.started(len(networks) * (config.per_network + 1))
    try:
        for network in networks:
            if collection.late():
                break
            collection.network(network)
    finally:
        observer.finished()
    return collection.summary()


class _Collection:
    """A collection under way."""

    def __init__(
        self, store: History | Journal, held: Records, backend: Backend, config: CollectConfig, observer: Observer
    ) -> None:
        self.store = store
        self.held = held
        self.backend = backend
        self.config = config
        self.observer = observer
        self.run = uuid.uuid4().hex[:12]
        self.began = time.monotonic()
        self.measured = self.ok = 0
        self.skipped: dict[str, str] = {}
        self.total = 0

    def late(self) -> bool:
        """Whether the time is up."""
        minutes = self.config.minutes
        return minutes is not None and time.monotonic() - self.began > 60 * minutes

    def network(self, network: Network) -> None:
        """Measures what is missing of one network; one that cannot be measured is skipped with the reason."""
        self.observer.stage(f"making {network.name}")
        with tempfile.TemporaryDirectory(prefix="routecast-") as folder:
            try:
                made = network.make(Path(folder))
                model = open_model(made, network.shapes, name=network.name, family=network.family)
                self._measure(model, network, Path(folder, "bench"))
            except RoutecastError as error:
                self.skipped[network.name] = str(error)

    def _measure(self, model: Model, network: Network, folder: Path) -> None:
        space = self.backend.space(model)
        seed = zlib.crc32(f"{network.name} {self.config.seed}".encode())
        routes = [
            (Route(), Purpose.CONTROL),
            *((r, Purpose.EXPLORE) for r in plan(space, self.config.per_network, seed)),
        ]
        known = self._known(model)
        missing = [(route, purpose) for route, purpose in routes if route not in known]
        self.total += len(routes)
        if not missing:
            return
        limits = Limits(self.config.timeout_s)
        bench_config = BenchConfig(
            ranges=network.ranges, seed=self.config.seed, limits=limits, explore=self.config.timing
        )
        best: Measurement | None = None
        with Workbench(model, self.backend, space, folder, bench_config, self.run) as bench:
            self.store.add_graph(model.graph)
            self.store.add_environment(bench.environment)
            bench.start()
            for route, purpose in missing:
                if self.late():
                    return
                best = self._one(bench, route, purpose, best)

    def _known(self, model: Model) -> set[Route]:
        """Routes of a model that the store held, measured on this kind of device, when the collection began."""
        here = self.backend.environment()
        return {
            item.route
            for item in self.held.measurements
            if item.fingerprint == model.graph.fingerprint
            and comparable(self.held.environments[item.environment], here)
        }

    def _one(self, bench: Workbench, route: Route, purpose: Purpose, best: Measurement | None) -> Measurement | None:
        """Measures one route; returns the best of the network so far, given that of the routes before."""
        self.observer.stage(f"{bench.model.name}: {route.label()}")
        measurement = bench.measure(route, purpose)
        self.store.add(measurement)
        bench.discard(route)
        self.measured += 1
        self.ok += measurement.ok
        best = best_of([measurement] if best is None else [best, measurement])
        self.observer.measured(measurement, None, best, self.measured, self.total)
        return best

    def summary(self) -> CollectSummary:
        """What has been done so far."""
        return CollectSummary(self.measured, self.ok, self.skipped, time.monotonic() - self.began)


def comparable(one: Environment, other: Environment) -> bool:
    """Whether measurements of two environments may stand for each other: same device, backend and versions."""
    return (one.backend, one.backend_version, one.tuner_version, one.device) == (
        other.backend,
        other.backend_version,
        other.tuner_version,
        other.device,
    )
