"""Tuning one model: predict, measure what promises most, confirm, and never return what is slower than the default."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from routecast.costmodel.base import MOST_LOSS
from routecast.costmodel.repeats import METRIC, combine
from routecast.datasets.errors import UsageError
from routecast.datasets.measurement import Measurement, Purpose
from routecast.datasets.model import Model, open_model
from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.backends.base import Backend
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.confirmation import (
    CONFIRMATIONS,
    LEAST_GAIN,
    Confirmation,
    control_margin,
    settled_control,
    shared,
    simplest,
    verdict,
)
from routecast.tuner.measure.accuracy import AccuracyLimit
from routecast.tuner.measure.inputs import Ranges
from routecast.tuner.measure.runner import Limits
from routecast.tuner.measure.subjects import Subject
from routecast.tuner.measure.workbench import BenchConfig, Workbench
from routecast.tuner.ranking import text_for_tuner
from routecast.tuner.results import Observer, RoutePrediction, TuneResult, best_of
from routecast.tuner.search import make_strategy
from routecast.tuner.search.base import Strategy
from routecast.tuner.state import TuneState

if TYPE_CHECKING:
    from routecast.costmodel.base import ModelView
    from routecast.datasets.history import History
    from routecast.tuner.fleet import FleetBench

    Bench = Workbench | FleetBench

CONFIRMED_ROUTES = 2
TUNER_FILE = "tune_build_routes.txt"
"""What the vendor's own tuner reads, in the output folder; for TensorRT, trtexec's ``--tuneBuildRouteFile``."""


@dataclass(frozen=True)
class TuneConfig:
    """How to tune.

    Attributes:
        backend: what builds and runs.
        builds: number of routes to explore.
        rounds: they are asked for in this many rounds, or fewer where a fleet measures more at once; the cost model is
            corrected in between.
        minutes: no new route is begun after this time; None sets no limit.
        strategy: name of the search strategy.
        cost_model: folder of a cost model; None is the champion of the registry, or the shipped one without it.
        any_version: whether the cost model is used even for a version of the backend that it never saw; without, knobs
            are then tried one at a time.
        metric, threshold: accuracy limit.
        seed: of inputs, of the search and of the order of blocks.
        timeout_s: of one route, in seconds.
        memory_gb: of one route, in GB; None is four fifths of the machine's.
        input_sets: number of generated input sets.
        allow_numerics: whether knobs that may change results are tried, within the accuracy limit.
        pool: number of candidate routes that the cost model scores per round.
    """

    backend: str = "onnxruntime"
    builds: int = 8
    rounds: int = 4
    minutes: float | None = None
    strategy: str = "model"
    cost_model: str | Path | None = None
    any_version: bool = False
    metric: str = "cos"
    threshold: float = 1e-2
    seed: int = 0
    timeout_s: float = 120.0
    memory_gb: float | None = None
    input_sets: int = 2
    allow_numerics: bool = True
    pool: int = 4096

    def __post_init__(self) -> None:
        """Checks what can be checked without a model."""
        for name in ("builds", "rounds", "input_sets", "pool", "timeout_s"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be above 0, got {getattr(self, name)}")
        self.limit  # noqa: B018 - checks the metric

    def per_round(self, width: int) -> int:
        """Routes of a round, not fewer than the ``width`` that are measured at once."""
        return max(math.ceil(self.builds / self.rounds), width)

    @property
    def limit(self) -> AccuracyLimit:
        """The accuracy limit."""
        return AccuracyLimit(self.metric, self.threshold)

    @property
    def most_loss(self) -> float:
        """The limit that the cost model weighs routes by: it knows one metric, and for others takes its own limit."""
        return self.threshold if self.metric == METRIC else MOST_LOSS


def tune(
    model: str | Path | Model,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    family: str = "unknown",
    inputs: Sequence[Path] = (),
    ranges: Ranges | None = None,
    history: History | str | Path | None = None,
    output: Path | None = None,
    resume: bool = False,
    config: TuneConfig | None = None,
    observer: Observer | None = None,
    ray: str | None = None,
) -> TuneResult:
    """Tunes one model and writes the faster one, a report and the measurements.

    Args:
        model: an ONNX file.
        shapes: by input name, needed for dynamic inputs.
        family: architecture family to file the measurements under.
        inputs: input sets to measure and judge with, ``.npz`` or ``.npy``; generated when empty.
        ranges: of generated inputs.
        history: where measurements are kept; None is the user's own.
        output: folder of the results; None is ``routecast-<model>`` here.
        resume: go on with the interrupted tune in ``output``.
        config: how to tune.
        observer: is told what happens.
        ray: address of a Ray cluster whose workers measure instead of this machine.

    Raises:
        UsageError: the model, inputs or options cannot be used.
        RoutecastError: the unmodified model does not run, the disk is full, the history cannot be written, or no
            worker is left.
    """
    from routecast.datasets.history import History
    from routecast.tuner.report import write_report

    config, observer = config or TuneConfig(), observer or Observer()
    opened = model if isinstance(model, Model) else open_model(model, shapes, family=family)
    backend = get_backend(config.backend)
    output = (output or Path(f"routecast-{opened.name}")).resolve()
    owned = not isinstance(history, History)
    store = History(history) if not isinstance(history, History) else history
    try:
        begin = TuneState.resume if resume else TuneState.begin
        state = begin(output, opened.graph.fingerprint, _settings(config, shapes, inputs, ranges))
        session = _Tune(opened, backend, store, state, config, observer, ray)
        bench = BenchConfig(
            inputs=tuple(Path(path) for path in inputs),
            input_sets=config.input_sets,
            ranges=ranges or {},
            seed=config.seed,
            limit=config.limit,
            limits=Limits(config.timeout_s, None if config.memory_gb is None else int(config.memory_gb * 1e9)),
        )
        result = session.run(bench)
        observer.stage("writing the report")
        write_report(result, opened.graph, output / "report.html")
        return result
    finally:
        observer.finished()
        if owned:
            store.close()


def _settings(
    config: TuneConfig,
    shapes: Mapping[str, Sequence[int]] | None,
    inputs: Sequence[str | Path],
    ranges: Ranges | None,
) -> dict[str, Any]:
    """All that the result depends on besides the model, as JSON values."""
    values = {
        **asdict(config),
        "shapes": dict(shapes or {}),
        "inputs": [str(path) for path in inputs],
        "ranges": dict(ranges or {}),
    }
    settings: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return settings


class _Tune:
    """One tune under way."""

    space: RouteSpace

    def __init__(
        self,
        model: Model,
        backend: Backend,
        store: History,
        state: TuneState,
        config: TuneConfig,
        observer: Observer,
        ray: str | None,
    ) -> None:
        self.model = model
        self.backend = backend
        self.store = store
        self.state = state
        self.config = config
        self.observer = observer
        self.ray = ray
        self.measurements: list[Measurement] = list(store.measurements(run=state.run))
        self.earlier: list[Measurement] = []
        self.warnings: tuple[str, ...] = ()
        self.cost_model = ""
        self.view: ModelView | None = None
        self.began = time.monotonic()

    def run(self, bench_config: BenchConfig) -> TuneResult:
        """Does what is left to do."""
        work = self.state.output / "work"
        if work.exists():  # left by an interrupted run; what was measured is in the history
            shutil.rmtree(work)
        self.observer.started(self.config.builds)
        self.observer.stage("preparing")
        with self._bench(work, bench_config) as bench:
            self.space = bench.space
            self.store.add_graph(self.model.graph)
            bench.start()
            self.observer.stage("A/A control")
            control = settled_control(lambda number: self._control(bench, number))
            self._explore(bench)
            result = self._result(bench, control)
        shutil.rmtree(work, ignore_errors=True)
        return result

    @contextlib.contextmanager
    def _bench(self, work: Path, config: BenchConfig) -> Iterator[Bench]:
        """What measures: this machine, or the workers of a fleet, on resuming those with the same kind of device."""
        if self.ray is None:
            self.backend.need_to_measure()
            space = self.backend.space(self.model, allow_numerics=self.config.allow_numerics)
            with Workbench(self.model, self.backend, space, work, config, self.state.run) as bench:
                yield bench
            return
        from routecast.tuner.fleet import Fleet

        before = self.measurements[0].environment if self.measurements else None
        subject = Subject(self.model, config, self.state.run, self.config.allow_numerics)
        with Fleet(self.ray, self.backend, self.observer) as fleet:
            yield fleet.bench(subject, work, None if before is None else self.store.environment(before))

    def _control(self, bench: Bench, number: int) -> Measurement:
        control = self._once(bench, Route(), Purpose.CONTROL, number)
        if not control.ok:
            raise UsageError(f"the default route does not work ({control.status}): {control.message}")
        return control

    def _once(self, bench: Bench, route: Route, purpose: Purpose, number: int = 0) -> Measurement:
        """The ``number``-th measurement of a route for a purpose: from the history if it is there, else made now."""
        known = [item for item in self.measurements if item.route == route and item.purpose is purpose]
        if number < len(known):
            return known[number]
        measurement = bench.measure(route, purpose)
        self._store(bench, measurement)
        return measurement

    def _store(self, bench: Bench, measurement: Measurement) -> None:
        self.store.add_environment(bench.environment_of(measurement))
        self.store.add(measurement)
        self.measurements.append(measurement)

    def _explored(self) -> list[Measurement]:
        return [item for item in self.measurements if item.purpose is Purpose.EXPLORE]

    def _remembered(self, bench: Bench) -> list[Measurement]:
        """What earlier runs measured of this model on this kind of device, of routes that may be tried and pass now."""
        places = self.store.comparable(bench.environment)
        return [
            item
            for item in self.store.measurements(fingerprint=self.model.graph.fingerprint, lean=True)
            if item.run != self.state.run
            and item.environment in places
            and item.purpose is not Purpose.CONTROL
            and item.route
            and self.space.offers(item.route)
            and not (item.ok and self.config.limit.reason({self.config.metric: math.inf, **item.accuracy}))
        ]

    def _explore(self, bench: Bench) -> None:
        """Rounds of asking, measuring and telling, until the budget is spent."""
        strategy, self.view = self._strategy(bench)
        self.earlier = self._remembered(bench)
        if self.earlier:
            known = len({item.route for item in self.earlier})
            self.observer.stage(f"{known} routes of this model are in the history")
        strategy.tell([*self.earlier, *self._explored()])
        while not self._spent():
            self.observer.stage("choosing routes")
            left = self.config.builds - len(self._explored())
            routes = strategy.ask(min(self.config.per_round(bench.width), left))
            if not routes:
                return
            self._predict(self.view, routes)
            strategy.tell(self._measure_round(bench, routes))

    def _measure_round(self, bench: Bench, routes: Sequence[Route]) -> list[Measurement]:
        measured = []
        predictions = {item.route: item for item in self.state.predictions}
        for measurement in bench.measure_many(routes, self._late, self.observer.stage):
            self._store(bench, measurement)
            measured.append(measurement)
            explored = self._explored()
            prediction = predictions.get(measurement.route)
            self.observer.measured(measurement, prediction, best_of(explored), len(explored), self.config.builds)
        return measured

    def _spent(self) -> bool:
        return self._late() or len(self._explored()) >= self.config.builds

    def _late(self) -> bool:
        minutes = self.config.minutes
        return minutes is not None and time.monotonic() - self.began > 60 * minutes

    def _strategy(self, bench: Bench) -> tuple[Strategy, ModelView | None]:
        view = self._view(bench) if self.config.strategy == "model" else None
        strategy = make_strategy(
            self.config.strategy,
            self.space,
            seed=self.config.seed,
            view=view,
            pool=self.config.pool,
            builds=self.config.builds - len(self._explored()),
        )
        return strategy, view

    def _view(self, bench: Bench) -> ModelView | None:
        from routecast.training import find_cost_model

        self.observer.stage("loading the cost model")
        model = find_cost_model(self.config.cost_model)
        if model is None:
            self.warnings = ("no cost model is at hand: knobs are tried one at a time; `routecast train` makes one",)
            return None
        if self.config.any_version:
            model = model.of_any_version()
        self.cost_model = model.name
        view = model.view(self.model.graph, bench.environment, most_loss=self.config.most_loss)
        self.warnings = view.warnings
        if model.refusal(bench.environment):
            self.warnings += ("so knobs are tried one at a time; --any-version relies on the cost model nevertheless",)
        return view

    def _predict(self, view: ModelView | None, routes: Sequence[Route]) -> None:
        """Keeps what the cost model, as it was before this tune, says of routes about to be measured."""
        if view is None:
            return
        said = view.predict(routes)
        self.state.predictions += [
            RoutePrediction(route, *(float(value) for value in values))
            for route, *values in zip(
                routes, said.ratio, said.ratio_low, said.ratio_high, said.latency_ms, said.failure, strict=True
            )
        ]
        self.state.save()

    def _result(self, bench: Bench, control: Measurement) -> TuneResult:
        """Confirms the leading routes and writes everything down."""
        known = [*self.earlier, *self._explored()]
        confirmed = [self._confirm(bench, route) for route in self._leading(known)]
        margin = control_margin(control)
        winner = simplest(item for item in confirmed if item.wins(margin))
        default_ms = control.default_ms or math.nan
        artifact = self._keep(bench, winner)  # may measure once more, which belongs to the result
        if text := text_for_tuner(self.backend, self.space, winner.route, self.view, known):
            (self.state.output / TUNER_FILE).write_text(text)
        result = TuneResult(
            model_name=self.model.name,
            model_path=self.model.path,
            fingerprint=self.model.graph.fingerprint,
            environment=bench.environment,
            winner=winner.route,
            ratio=winner.ratio,
            ratio_low=winner.low,
            ratio_high=winner.high,
            control_low=control.ratio_low or math.nan,
            control_high=control.ratio_high or math.nan,
            default_ms=default_ms,
            latency_ms=default_ms * winner.ratio,
            verdict=verdict(winner, confirmed, margin),
            measurements=tuple(self.measurements),
            predictions=tuple(self.state.predictions),
            warnings=self.warnings,
            cost_model=self.cost_model,
            strategy=self.config.strategy,
            output=self.state.output,
            artifact=artifact,
            settings=self.state.settings,
            seconds=time.monotonic() - self.began,
            builds=len(self._explored()),
        )
        result.save()
        return result

    def _leading(self, known: Sequence[Measurement]) -> list[Route]:
        """The routes to confirm: the fastest, and what it shares with those as fast, or else the second."""
        times = {item.route: item.log_ratio or 0.0 for item in combine(known) if not item.failed}
        routes = sorted((route for route, time in times.items() if time < 0.0), key=times.__getitem__)
        if self.view is None or not routes:
            return routes[:CONFIRMED_ROUTES]
        tied = [route for route in routes if times[route] <= times[routes[0]] + LEAST_GAIN]
        common = shared(self.space, self.view.adapt(known), tied)
        return list(dict.fromkeys([routes[0], common, *routes[1:]]))[:CONFIRMED_ROUTES]

    def _confirm(self, bench: Bench, route: Route) -> Confirmation:
        self.observer.stage(f"confirming {route.label()}")
        return Confirmation(
            route, tuple(self._once(bench, route, Purpose.CONFIRM, number) for number in range(CONFIRMATIONS))
        )

    def _keep(self, bench: Bench, winner: Confirmation) -> Path | None:
        """Puts the winner's own build, not another build of its route, in the output folder."""
        (self.state.output / "route.txt").write_text(f"{winner.route}\n")
        built = self._built(bench, winner.route)
        if built is None:  # measured before an interruption, whose builds are gone
            known = sum(item.route == winner.route and item.purpose is Purpose.CONFIRM for item in self.measurements)
            self._once(bench, winner.route, Purpose.CONFIRM, known)
            built = self._built(bench, winner.route)
        assert built is not None
        return self.backend.export(built, winner.route, self.state.output)

    def _built(self, bench: Bench, route: Route) -> Path | None:
        """The last build of a route that is at hand: confirmations come last."""
        mine = (item for item in reversed(self.measurements) if item.route == route)
        return next((path for item in mine if (path := bench.artifact(item)) is not None), None)
