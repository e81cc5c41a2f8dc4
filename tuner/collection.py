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
from routecast.datasets.errors import UsageError
from routecast.datasets.journal import Journal
from routecast.datasets.measurement import Measurement, Purpose
from routecast.datasets.model import Model, open_model
from routecast.datasets.records import Records
from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.backends.base import one_line
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.measure.runner import Limits
from routecast.tuner.measure.subjects import Outcome, Subject, Task, Unmeasured, measure_here
from routecast.tuner.measure.timing import TimingConfig
from routecast.tuner.measure.workbench import EXPLORE, BenchConfig
from routecast.tuner.results import Observer, best_of
from routecast.tuner.search import favourites

if TYPE_CHECKING:
    from routecast.costmodel import Ensemble
    from routecast.datasets.history import History
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
        per_network: routes per network drawn at random, the A/A control not counted.
        favourites: further routes per network that a cost model thinks best. A search goes where the cost model hopes
            for too much, and random routes hardly ever show that it does.
        cost_model: folder of that cost model; None is the champion of the registry, or the shipped one without it.
        seed: of the choice of routes and of inputs.
        timeout_s: of one route, in seconds.
        minutes: no new route is begun after this time; None sets no limit.
        timing: how to time a route.
    """

    backend: str = "onnxruntime"
    per_network: int = 42
    favourites: int = 0
    cost_model: str | Path | None = None
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
    rng.shuffle(routes)
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
        UsageError: favourites are wanted, and there is no cost model.
    """
    config, observer = config or CollectConfig(), observer or Observer()
    backend = get_backend(config.backend)
    collection = _Collection(store, known or Records(), config, observer)
    observer.started(len(networks) * (1 + config.per_network + config.favourites))
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
        self.cost_model = _cost_model(config) if config.favourites else None
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
        routes = plan(space, self.config.per_network, seed) + self._favourites(model, space, environment, seed)
        tasks = [Task(Route(), Purpose.CONTROL), *(Task(route) for route in routes)]
        known = self._known(model, environment, [task.route for task in tasks])
        self.total += len(tasks)
        missing = [task for task in dict.fromkeys(tasks) if task.route not in known]
        if missing:
            self.store.add_graph(model.graph)
        return missing

    def _favourites(self, model: Model, space: RouteSpace, environment: Environment, seed: int) -> list[Route]:
        """What the cost model thinks best of this network."""
        if self.cost_model is None:
            return []
        view = self.cost_model.view(model.graph, environment)
        return favourites(space, view, self.config.favourites, seed)

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
        places = [identity for identity, place in self.store.environments().items() if here.comparable(place)]
        return found | self.store.known(model.graph.fingerprint, places, routes)

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


def _cost_model(config: CollectConfig) -> Ensemble:
    """What chooses favourites."""
    from routecast.training import find_cost_model

    found = find_cost_model(config.cost_model)
    if found is None:
        raise UsageError("no cost model is at hand to name favourites: `routecast train` makes one")
    return found
