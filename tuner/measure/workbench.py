"""All that measuring the routes of one model needs: its files, inputs and reference, and a runner of children."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self
from uuid import uuid4

from routecast.datasets.environment import Environment
from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.measurement import LocalTime, Measurement, Purpose, Status
from routecast.datasets.model import Model, write_static
from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.backends.base import Backend
from routecast.tuner.measure.accuracy import AccuracyLimit
from routecast.tuner.measure.inputs import Ranges, save_input_sets
from routecast.tuner.measure.runner import Limits, Runner
from routecast.tuner.measure.steadiness import UsualLatency
from routecast.tuner.measure.timing import TimingConfig
from routecast.tuner.measure.worker import DEFAULT_KEY, Job

EXPLORE = TimingConfig()
CONFIRM = TimingConfig(min_blocks=12, max_blocks=36, seconds=2.5, half_width=0.0015, lost=float("inf"))


@dataclass(frozen=True)
class BenchConfig:
    """How to measure.

    Attributes:
        inputs: the user's input sets, ``.npz`` or ``.npy``; when empty, sets are generated.
        input_sets: how many to generate.
        ranges: of generated inputs, by input name.
        seed: of generated inputs and of block order.
        limit: accuracy limit.
        limits: time and memory of a child.
        explore: timing of a first measurement.
        confirm: timing of controls and confirmations.
        attempts: how often a timing is made at most, each in a process of its own, while the default route is slower
            than it usually is.
    """

    inputs: tuple[Path, ...] = ()
    input_sets: int = 2
    ranges: Ranges = field(default_factory=dict)
    seed: int = 0
    limit: AccuracyLimit = field(default_factory=AccuracyLimit)
    limits: Limits = field(default_factory=Limits)
    explore: TimingConfig = EXPLORE
    confirm: TimingConfig = CONFIRM
    attempts: int = 5


class Workbench:
    """Measures routes of one model on one backend.

    Use it as a context manager: leaving it ends the measuring processes. Builds and outputs stay in the folder.

    Attributes:
        width: number of routes that are measured at once.
        artifacts: where the build of a measurement lies, by the measurement's identity.
    """

    width: ClassVar[int] = 1

    def __init__(
        self, model: Model, backend: Backend, space: RouteSpace, folder: Path, config: BenchConfig, run: str = ""
    ) -> None:
        """Prepares the files; ``start`` runs the unmodified model."""
        self.model = model
        self.backend = backend
        self.space = space
        self.environment: Environment = backend.environment()
        self.artifacts: dict[str, Path] = {}
        self._config = config
        self._run = run
        self._folder = folder.resolve()
        (self._folder / "artifacts").mkdir(parents=True, exist_ok=True)
        self._static = write_static(model, self._folder)
        self._inputs = save_input_sets(
            model,
            self._folder,
            given=config.inputs,
            count=config.input_sets,
            seed=config.seed,
            ranges=config.ranges,
        )
        self._references = tuple(path.with_name(path.name.replace("inputs", "reference")) for path in self._inputs)
        self._runner = Runner(backend.preload, config.limits)
        self._timed: dict[tuple[str, Route], Measurement] = {}
        self._usual = UsualLatency()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._runner.close()

    def start(self) -> None:
        """Runs the unmodified model on every input set and keeps its outputs as the reference.

        Raises:
            UsageError: it gives NaN, infinity or only zeros.
            RoutecastError: it does not run, crashes or hangs.
        """
        result = self._runner.run(self._job("reference"))
        if "usage_error" in result:
            raise UsageError(result["usage_error"])
        if "error" in result or "status" in result:
            reason = result.get("error") or result["message"]
            raise RoutecastError(f"the unmodified model {self.model.path} does not run: {reason}")

    def measure(self, route: Route, purpose: Purpose = Purpose.EXPLORE) -> Measurement:
        """Measures one route in a child of its own; whatever the route does is a measurement.

        A route to explore whose build is byte for byte that of one timed here before, under the same settings at
        load, is not timed again: it takes over what the other one's timing and checking found, and its message says so.
        A confirmation is built anew, once. A timing made while the default was not as fast as usual is made again: a
        machine in another state slows routes unequally. Whether that is so is asked of the default alone, never of the
        route.

        Raises:
            RoutecastError: the disk is full or the measuring process itself is gone.
        """
        result = self._measured(route, purpose)
        artifact = result.pop("artifact", None)
        if result.pop("twin", False):
            values = {**result, **_of_twin(self._timed[result["engine_hash"], self._load_settings(route)])}
        else:
            profile = tuple(LocalTime(**layer) for layer in result.pop("local_profile", ()))
            values = {**result, "status": Status(result["status"]), "local_profile": profile}
        measurement = Measurement(
            fingerprint=self.model.graph.fingerprint,
            route=route,
            environment=self.environment.identity,
            model=self.model.name,
            family=self.model.family,
            purpose=purpose,
            run=self._run,
            **values,
        )
        if measurement.ratio is not None:
            self._timed.setdefault((measurement.engine_hash, self._load_settings(route)), measurement)
        if artifact is not None:
            self.artifacts[measurement.identity] = Path(artifact)
        return measurement

    def _measured(self, route: Route, purpose: Purpose) -> dict[str, Any]:
        """What the last of the jobs found that were done for a measurement."""
        why = ""
        build_key = f"confirmation-{uuid4().hex}" if purpose is Purpose.CONFIRM else self._build_key(route)
        for attempt in range(1, self._config.attempts + 1):
            job = self._job("measure", route, purpose, build_key)
            result = self._runner.run(job)
            if "fatal" in result:
                raise RoutecastError(result["fatal"])
            shutil.rmtree(job.folder)
            slow = self._usual.exceeded(result["default_ms"]) if "default_ms" in result else ""
            if not slow or attempt == self._config.attempts:
                break
            why = slow
        if "default_ms" in result:
            self._usual.add(result["default_ms"])
        if why and result.get("status") == Status.OK:
            result["message"] = f"timed {attempt} times, since {why}"
        return result

    def measure_many(
        self, routes: Sequence[Route], late: Callable[[], bool], stage: Callable[[str], None]
    ) -> Iterator[Measurement]:
        """Measures routes to explore one after the other.

        Args:
            routes: distinct routes.
            late: says when no further one may begin.
            stage: is told what is being done.
        """
        for route in routes:
            if late():
                return
            stage(f"measuring {route.label()}")
            yield self.measure(route)

    def environment_of(self, measurement: Measurement) -> Environment:
        """Where one of this bench's measurements was made."""
        assert measurement.environment == self.environment.identity
        return self.environment

    def artifact(self, measurement: Measurement) -> Path | None:
        """Where the build of a measurement lies, None when it is not at hand."""
        return self.artifacts.get(measurement.identity)

    def build(self, route: Route) -> Path | None:
        """Builds a route and does no more; returns the folder of the build, None when it failed."""
        job = self._job("build", route)
        built = "built" in self._runner.run(job)
        shutil.rmtree(job.folder)
        return self._build_folder(route) if built else None

    def accept(self, route: Route, folder: Path) -> None:
        """Takes over the folder of a build that another host's workbench made of this route."""
        if not self._build_folder(route).exists():
            folder.rename(self._build_folder(route))

    def discard(self, route: Route) -> None:
        """Deletes what was built for a route, which frees its disk space; the default route's build is kept."""
        if self._build_key(route) != DEFAULT_KEY:
            shutil.rmtree(self._build_folder(route), ignore_errors=True)

    def _job(
        self, kind: str, route: Route | None = None, purpose: Purpose = Purpose.EXPLORE, build_key: str = ""
    ) -> Job:
        self._count += 1
        folder = self._folder / f"job-{self._count:04d}"
        if folder.exists():  # left by an interrupted run
            shutil.rmtree(folder)
        route = route if route is not None else Route()
        return Job(
            kind=kind,
            folder=str(folder),
            backend=self.backend.name,
            model=str(self._static),
            inputs=tuple(map(str, self._inputs)),
            references=tuple(map(str, self._references)),
            artifacts=str(self._folder / "artifacts"),
            build_key=build_key or self._build_key(route),
            timed_hashes=self._timed_hashes(route) if purpose is Purpose.EXPLORE else (),
            node_names=tuple(node.name for node in self.model.graph.nodes),
            route=str(route),
            timing=self._config.explore if purpose is Purpose.EXPLORE else self._config.confirm,
            limit=self._config.limit,
            seed=self._config.seed + self._count,
        )

    def _build_folder(self, route: Route) -> Path:
        return self._folder / "artifacts" / self._build_key(route)

    def _build_key(self, route: Route) -> str:
        """Names the part of a route that changes what is built."""
        parts = {name: value for name, value in route.items() if self.space.by_name[name].stage == "build"}
        return hashlib.sha256(str(Route(parts)).encode()).hexdigest()[:16] if parts else DEFAULT_KEY

    def _load_settings(self, route: Route) -> Route:
        """The part of a route that acts when its build is loaded."""
        again = self.backend.compiles_at_load
        knobs = [self.space.by_name[name] for name in route]
        return Route({knob.name: route[knob.name] for knob in knobs if knob.stage == "load" or knob.group in again})

    def _timed_hashes(self, route: Route) -> tuple[str, ...]:
        settings = self._load_settings(route)
        return tuple(artifact for artifact, other in self._timed if other == settings)


def _of_twin(first: Measurement) -> dict[str, Any]:
    """What a measurement takes over from that of the same engine."""
    taken = (
        "status", "latency_ms", "default_ms", "ratio", "ratio_low", "ratio_high", "blocks_ms", "default_blocks_ms",
        "accuracy", "device_state", "local_profile",
    )  # fmt: skip
    message = f"engine identical to that of {first.route.label()}; timing taken from it"
    return {**{name: getattr(first, name) for name in taken}, "message": message}
