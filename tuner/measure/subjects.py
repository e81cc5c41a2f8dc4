"""What is asked of whoever measures, and what comes back: the same for this machine and for a fleet."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from routecast.datasets.environment import Environment
from routecast.datasets.errors import RoutecastError
from routecast.datasets.measurement import Measurement, Purpose
from routecast.datasets.model import Model
from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.backends.base import Backend
from routecast.tuner.measure.workbench import BenchConfig, Workbench


@dataclass(frozen=True)
class Subject:
    """A model to measure.

    Attributes:
        model: the model.
        config: how to measure it.
        run: identity of the tune or collection, which its measurements carry.
        allow_numerics: whether knobs that may change results are in its route space.
    """

    model: Model
    config: BenchConfig
    run: str = ""
    allow_numerics: bool = True


@dataclass(frozen=True)
class Task:
    """One route to measure."""

    route: Route
    purpose: Purpose = Purpose.EXPLORE


@dataclass(frozen=True)
class Measured:
    """A measurement, and the environment it was made in."""

    measurement: Measurement
    environment: Environment


@dataclass(frozen=True)
class Unmeasured:
    """A model of which nothing, or nothing more, could be measured, and why."""

    model: str
    error: RoutecastError


Outcome = Measured | Unmeasured
Plan = Callable[[Model, RouteSpace, Environment], Sequence[Task]]
"""What to measure of a model where it has this route space, in this environment."""


def measure_here(
    backend: Backend,
    subjects: Iterable[Subject],
    plan: Plan,
    late: Callable[[], bool],
    stage: Callable[[str], None],
) -> Iterator[Outcome]:
    """Measures model after model, route after route on this machine, and yields each outcome as it exists.

    Args:
        backend: what builds and runs.
        subjects: asked for one at a time.
        plan: chooses the routes of each.
        late: says when no further route may begin.
        stage: is told what is being done.

    Raises:
        UsageError: the backend cannot measure here.
    """
    backend.need_to_measure()
    for subject in subjects:
        with tempfile.TemporaryDirectory(prefix="routecast-") as folder:
            try:
                yield from _measure_one(backend, subject, plan, late, stage, Path(folder))
            except RoutecastError as error:
                yield Unmeasured(subject.model.name, error)


def _measure_one(
    backend: Backend,
    subject: Subject,
    plan: Plan,
    late: Callable[[], bool],
    stage: Callable[[str], None],
    folder: Path,
) -> Iterator[Measured]:
    model = subject.model
    space = backend.space(model, allow_numerics=subject.allow_numerics)
    tasks = plan(model, space, backend.environment())
    if not tasks:
        return
    with Workbench(model, backend, space, folder, subject.config, subject.run) as bench:
        bench.start()
        for task in tasks:
            if late():
                return
            stage(f"{model.name}: {task.route.label()}")
            yield Measured(bench.measure(task.route, task.purpose), bench.environment)
            bench.discard(task.route)
