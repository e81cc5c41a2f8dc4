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
from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.backends.base import Backend
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.measure.runner import Limits
from routecast.tuner.measure.workbench import BenchConfig, Workbench
from routecast.tuner.results import Observer, best_of

if TYPE_CHECKING:
    from routecast.datasets.history import History
    from routecast.datasets.journal import Journal
    from routecast.datasets.zoo import Network

SINGLE_CHANGES = 0.4


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
    """

    backend: str = "onnxruntime"
    per_network: int = 42
    seed: int = 0
    timeout_s: float = 60.0
    minutes: float | None = None


def plan(space: RouteSpace, count: int, seed: int) -> list[Route]:
    """Chooses the routes to measure: two fifths change one knob, the rest are random routes.

    The order is random, so that a collection cut short still holds both kinds.
    """
    rng = np.random.default_rng(seed)
    singles = space.single_changes()
    rng.shuffle(singles)
    singles = singles[: round(SINGLE_CHANGES * count)]
    routes = singles + space.sample(count - len(singles), rng, exclude=singles)
    rng.shuffle(routes)
    return routes


def collect(
    networks: Sequence[Network],
    store: History | Journal,
    config: CollectConfig | None = None,
    observer: Observer | None = None,
) -> CollectSummary:
    """Measures routes of each network and stores every measurement as it exists.

    What the store already holds for the same network, route and kind of device is not measured again.
    """
    config, observer = config or CollectConfig(), observer or Observer()
    collection = _Collection(store, get_backend(config.backend), config, observer)
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

    def __init__(self, store: History | Journal, backend: Backend, config: CollectConfig, observer: Observer) -> None:
        self.store = store
        self.backend = backend
        self.config = config
        self.observer = observer
        self.run = uuid.uuid4().hex[:12]
        self.began = time.monotonic()
        self.done: list[Measurement] = []
        self.skipped: dict[str, str] = {}
        self.total = 0
        self.held = store.records()

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
        bench_config = BenchConfig(ranges=network.ranges, seed=self.config.seed, limits=Limits(self.config.timeout_s))
        with Workbench(model, self.backend, space, folder, bench_config, self.run) as bench:
            self.store.add_graph(model.graph)
            self.store.add_environment(bench.environment)
            bench.start()
            for route, purpose in missing:
                if self.late():
                    return
                self._one(bench, route, purpose)

    def _known(self, model: Model) -> set[Route]:
        """Routes of a model that the store held, measured on this kind of device, when the collection began."""
        here = self.backend.environment()
        return {
            item.route
            for item in self.held.measurements
            if item.fingerprint == model.graph.fingerprint
            and comparable(self.held.environments[item.environment], here)
        }

    def _one(self, bench: Workbench, route: Route, purpose: Purpose) -> None:
        self.observer.stage(f"{bench.model.name}: {route.label()}")
        measurement = bench.measure(route, purpose)
        self.store.add(measurement)
        self.done.append(measurement)
        of_model = [item for item in self.done if item.fingerprint == measurement.fingerprint]
        self.observer.measured(measurement, None, best_of(of_model), len(self.done), self.total)

    def summary(self) -> CollectSummary:
        """What has been done so far."""
        ok = sum(item.ok for item in self.done)
        return CollectSummary(len(self.done), ok, self.skipped, time.monotonic() - self.began)


def comparable(one: Environment, other: Environment) -> bool:
    """Whether measurements of two environments may stand for each other: same device, backend and versions."""
    return (one.backend, one.backend_version, one.tuner_version, one.device) == (
        other.backend,
        other.backend_version,
        other.tuner_version,
        other.device,
    )
