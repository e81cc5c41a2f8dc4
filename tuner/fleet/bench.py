"""Measuring one model on a fleet, route by route or many at once: a workbench whose benches stand elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from routecast.datasets.environment import Environment
from routecast.datasets.errors import RoutecastError
from routecast.datasets.measurement import Measurement, Purpose
from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.fleet.bundle import write_files
from routecast.tuner.fleet.crew import Worker, kind_of
from routecast.tuner.fleet.replies import read_artifact
from routecast.tuner.fleet.round import Sent
from routecast.tuner.measure.subjects import Measured, Subject, Task

if TYPE_CHECKING:
    from routecast.tuner.fleet import Fleet

START_SECONDS = 30.0
"""How long workers that are starting are waited for once the first has started."""
FETCH_SECONDS = 600.0


class FleetBench:
    """Offers what ``Workbench`` offers, by the workers of one kind of device.

    What is measured one at a time (the A/A control, confirmations) stays on one worker while that lives. Every
    measurement compares with the default route timed beside it, on the same worker.

    Attributes:
        environment: of the worker that opened the model first.
        space: the model's route space there.
    """

    def __init__(self, fleet: Fleet, subject: Subject, folder: Path, like: Environment | None = None) -> None:
        """Takes a fleet and a model, where to put builds that are fetched, and what workers must be like.

        Args:
            fleet: the workers.
            subject: what to measure.
            folder: where fetched builds go.
            like: an environment of the wanted kind; None takes the most frequent kind.

        Raises:
            UsageError: the model cannot be sent or opened.
            RoutecastError: there is no worker.
        """
        self._fleet = fleet
        self._folder = folder
        self._sent = Sent.send(subject)
        self._kind = kind_of(like) if like else self._most_frequent()
        self._environments: dict[str, Environment] = {}
        self.environment, self.space = self._opened()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leaves the workers to the fleet."""

    def start(self) -> None:
        """Nothing is left to do: each worker runs the unmodified model before its first route."""

    def measure(self, route: Route, purpose: Purpose = Purpose.EXPLORE) -> Measurement:
        """Measures one route on the worker that measured alone before, on another one when that is gone."""
        return next(self._measured([Task(route, purpose)], lambda: False))

    def measure_many(
        self, routes: Sequence[Route], late: Callable[[], bool], stage: Callable[[str], None]
    ) -> Iterator[Measurement]:
        """Measures routes to explore on all workers at once and yields the measurements as they come.

        Args:
            routes: distinct routes.
            late: says when it is time to stop; what is being measured is then ended and not recorded.
            stage: is told what is being done.
        """
        stage("measuring")
        return self._measured([Task(route) for route in routes], late)

    @property
    def width(self) -> int:
        """Number of workers, which measure a route each at once."""
        return sum(self._suitable(worker) for worker in self._fleet.crew.live)

    def environment_of(self, measurement: Measurement) -> Environment:
        """Where one of this bench's measurements was made."""
        return self._environments[measurement.environment]

    def artifact(self, measurement: Measurement) -> Path | None:
        """The build of a measurement, fetched; None when it is gone with its worker.

        Raises:
            RoutecastError: the worker sent something else.
        """
        import ray

        for worker in self._fleet.crew.live:
            if measurement.identity in worker.made:
                try:
                    found = ray.get(worker.actor.artifact.remote(measurement.identity), timeout=FETCH_SECONDS)
                except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError):
                    return None
                if found is None:
                    return None
                name, files = read_artifact(found)
                folder = self._folder / measurement.identity
                write_files(files, folder)
                return folder / name
        return None

    def _measured(self, tasks: Sequence[Task], late: Callable[[], bool]) -> Iterator[Measurement]:
        for outcome in self._fleet.round([self._sent], lambda *_: tasks, late, self._suitable):
            if not isinstance(outcome, Measured):
                raise outcome.error
            self._environments[outcome.environment.identity] = outcome.environment
            yield outcome.measurement

    def _suitable(self, worker: Worker) -> bool:
        return worker.kind == self._kind

    def _opened(self) -> tuple[Environment, RouteSpace]:
        """Opens the model on one worker."""
        for _ in self._measured([], lambda: False):
            raise AssertionError("nothing was to be measured")
        for worker in self._fleet.crew.live:
            if worker.opened == self._sent.key and worker.environment is not None and worker.space is not None:
                return worker.environment, worker.space
        raise RoutecastError("the worker that opened the model died: run the same command again")

    def _most_frequent(self) -> tuple[object, ...]:
        """The kind of most workers, once all have started or enough time has gone by."""
        crew = self._fleet.crew
        until = time.monotonic() + self._fleet.patience
        waited: float | None = None
        while time.monotonic() < until and not crew.hopeless:
            crew.refresh()
            if crew.live:
                waited = waited or time.monotonic()
                if len(crew.live) == len(crew.workers) or time.monotonic() - waited > START_SECONDS:
                    break
            time.sleep(0.1)
        if not crew.live:
            raise RoutecastError(f"no worker can measure: {crew.why_nobody()}")
        counted = Counter(worker.kind for worker in crew.live)
        kind, count = counted.most_common(1)[0]
        if len(counted) > 1:
            self._fleet.observer.note(f"tuning for {count} workers with {kind[3]}; other kinds take no part")
        return kind
