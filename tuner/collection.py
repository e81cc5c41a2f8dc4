"""Collecting history: measures many routes of many networks, and goes on where an earlier run stopped."""

from __future__ import annotations

import contextlib
import tempfile
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from routecast.datasets.environment import Environment
from routecast.datasets.journal import Journal
from routecast.datasets.measurement import Measurement, Purpose
from routecast.datasets.model import Model, open_model
from routecast.datasets.records import Records
from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.backends.base import one_line
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.designs import plan
from routecast.tuner.measure.runner import Limits
from routecast.tuner.measure.subjects import Outcome, Subject, Task, Unmeasured, measure_here
from routecast.tuner.measure.timing import TimingConfig
from routecast.tuner.measure.workbench import EXPLORE, BenchConfig
from routecast.tuner.predictions import need_cost_model
from routecast.tuner.results import Observer, best_of
from routecast.tuner.search import favourites
from routecast.tuner.search.screening import screens

if TYPE_CHECKING:
    from routecast.datasets.history import History
    from routecast.datasets.zoo import Network


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
        per_network: routes per network drawn at random, the A/A control not counted.
        favourites: further routes per network that a cost model thinks best. A search goes where the cost model hopes
            for too much, and random routes hardly ever show that it does.
        screens: further routes per network with many knobs changed at once (see ``search.screening``).
        cost_model: folder of the cost model for these two; None is the champion of the registry, or the shipped one
            without it.
        seed: of the choice of routes and of inputs.
        timeout_s: of one route, in seconds.
        minutes: no new route is begun after this time; None sets no limit.
        timing: how to time a route.
    """

    backend: str = "onnxruntime"
    per_network: int = 42
    favourites: int = 0
    screens: int = 0
    cost_model: str | Path | None = None
    seed: int = 0
    timeout_s: float = 60.0
    minutes: float | None = None
    timing: TimingConfig = EXPLORE


def collect(
    networks: Sequence[Network],
    store: History | Journal,
    config: CollectConfig | None = None,
    observer: Observer | None = None,
    known: Records | None = None,
    ray: str | None = None,
) -> CollectSummary:
    """Measures routes of each network and stores every measurement as it exists.

    What the store already holds for the same network, route and kind of device is not measured again, nor is what
    ``known`` holds, such as the history of other hosts.

    Args:
        networks: what to measure.
        store: where measurements are kept.
        config: how to collect.
        observer: is told what happens.
        known: measurements that need not be made again.
        ray: address of a Ray cluster whose workers measure instead of this machine, each kind of device every network.

    Raises:
        UsageError: favourites or screens are wanted, and there is no cost model.
    """
    config, observer = config or CollectConfig(), observer or Observer()
    backend = get_backend(config.backend)
    collection = _Collection(store, known or Records(), config, observer)
    observer.started(len(networks) * (1 + config.per_network + config.favourites + config.screens))
    subjects = collection.subjects(networks)
    with contextlib.ExitStack() as stack:
        stack.callback(observer.finished)
        if ray is None:
            outcomes = measure_here(backend, subjects, collection.plan, collection.late, observer.stage)
        else:
            from routecast.tuner.fleet import Fleet

            fleet = stack.enter_context(Fleet(ray, backend, observer))
            outcomes = fleet.measure(subjects, collection.plan, collection.late)
        for outcome in outcomes:
            collection.keep(outcome)
    return collection.summary()


class _Collection:
    """A collection under way."""

    def __init__(self, store: History | Journal, known: Records, config: CollectConfig, observer: Observer) -> None:
        self.store = store
        self.known = known.merged(store.records()) if isinstance(store, Journal) else known
        self.config = config
        self.cost_model = need_cost_model(config.cost_model) if config.favourites or config.screens else None
        self.observer = observer
        self.run = uuid.uuid4().hex[:12]
        self.began = time.monotonic()
        self.measured = self.ok = 0
        self.best: dict[str, Measurement | None] = {}
        self.skipped: dict[str, str] = {}
        self.total = 0

    def late(self) -> bool:
        """Whether the time is up."""
        minutes = self.config.minutes
        return minutes is not None and time.monotonic() - self.began > 60 * minutes

    def subjects(self, networks: Sequence[Network]) -> Iterator[Subject]:
        """Makes one network after the other; one that cannot be made is skipped with the reason."""
        for network in networks:
            if self.late():
                return
            self.observer.stage(f"making {network.name}")
            with tempfile.TemporaryDirectory(prefix="routecast-") as folder:
                try:
                    made = network.make(Path(folder))
                    model = open_model(made, network.shapes, name=network.name, family=network.family)
                except Exception as error:  # whatever an exporter raises is a reason to skip this network alone
                    self.skipped[network.name] = one_line(error)
                    continue
                bench = BenchConfig(
                    ranges=network.ranges,
                    seed=self.config.seed,
                    limits=Limits(self.config.timeout_s),
                    explore=self.config.timing,
                )
                yield Subject(model, bench, self.run)

    def plan(self, model: Model, space: RouteSpace, environment: Environment) -> list[Task]:
        """What is missing of a network in an environment."""
        seed = zlib.crc32(f"{model.name} {self.config.seed}".encode())
        routes = plan(space, self.config.per_network, seed) + self._advised(model, space, environment, seed)
        tasks = [Task(Route(), Purpose.CONTROL), *(Task(route) for route in routes)]
        known = self._known(model, environment, [task.route for task in tasks])
        self.total += len(tasks)
        missing = [task for task in dict.fromkeys(tasks) if task.route not in known]
        if missing:
            self.store.add_graph(model.graph)
        return missing

    def _advised(self, model: Model, space: RouteSpace, environment: Environment, seed: int) -> list[Route]:
        """Screens and favourites, which a cost model advises."""
        if self.cost_model is None:
            return []
        view = self.cost_model.view(model.graph, environment)
        screened = screens(space, view, self.config.screens, np.random.default_rng(seed))
        return screened + favourites(space, view, self.config.favourites, seed)

    def _known(self, model: Model, here: Environment, routes: Sequence[Route]) -> set[Route]:
        """Those of some routes of a model that were measured on this kind of device."""
        found = {
            item.route
            for item in self.known.measurements
            if item.fingerprint == model.graph.fingerprint
            and here.comparable(self.known.environments[item.environment])
        }
        if isinstance(self.store, Journal):
            return found
        return found | self.store.known(model.graph.fingerprint, self.store.comparable(here), routes)

    def keep(self, outcome: Outcome) -> None:
        """Stores a measurement, or the reason why a network has none."""
        if isinstance(outcome, Unmeasured):
            self.skipped[outcome.model] = str(outcome.error)
            return
        measurement = outcome.measurement
        self.store.add_environment(outcome.environment)
        self.store.add(measurement)
        self.measured += 1
        self.ok += measurement.ok
        before = self.best.get(measurement.model)
        best = self.best[measurement.model] = best_of([measurement] if before is None else [before, measurement])
        self.observer.measured(measurement, None, best, self.measured, self.total)

    def summary(self) -> CollectSummary:
        """What has been done so far."""
        return CollectSummary(self.measured, self.ok, self.skipped, time.monotonic() - self.began)
