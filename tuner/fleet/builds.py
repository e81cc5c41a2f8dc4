"""Builds by whoever has cores, for backends whose builds run on another host as well as where they were made.

They are made ahead of the workers that time them. A worker never waits for a build that nobody has begun: it builds
itself, as it also does with what could not be built elsewhere.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from routecast.datasets.environment import Environment
from routecast.datasets.measurement import Purpose
from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.backends.base import Backend
from routecast.tuner.fleet.remote import build_elsewhere
from routecast.tuner.measure.subjects import Task

WAIT_SECONDS = 120.0
"""A worker without other work waits this long for a build under way, then builds itself."""


@dataclass
class _Build:
    """One build: what to do, and once begun, Ray's references to whether it worked and to its files."""

    order: tuple[Any, ...]
    done: Any = None
    files: Any = None
    began: float = 0.0


class Builds:
    """The builds of a round; without cores for them, or where builds are not portable, there are none."""

    def __init__(self, backend: Backend, cores: int) -> None:
        """Takes what builds, and how many builds may run at once."""
        self._backend = backend
        self._cores = cores if backend.portable_builds else 0
        self._part: dict[tuple[str, Route], tuple[str, Route]] = {}
        self._wanted: Counter[tuple[str, Route]] = Counter()
        self._waiting: dict[tuple[str, Route], _Build] = {}
        self._running: dict[tuple[str, Route], _Build] = {}
        self._ready: dict[tuple[str, Route], _Build] = {}

    def begin(self, key: str, bundle: Any, tasks: Iterable[Task], space: RouteSpace, environment: Environment) -> None:
        """Takes the tasks of a model whose builds are wanted; routes that differ only at load share one."""
        if not self._cores:
            return
        for task in tasks:
            part = Route({name: value for name, value in task.route.items() if space.by_name[name].stage == "build"})
            if part.is_default or task.purpose is not Purpose.EXPLORE:
                continue
            self._part[key, task.route] = wanted = (key, part)
            self._wanted[wanted] += 1
            order = (self._backend.name, environment, key, [bundle], str(part))
            self._waiting.setdefault(wanted, _Build(order))
        self._pump()

    def choose(self, key: str, tasks: Sequence[Task]) -> Task | None:
        """The task to measure next: one that is built, else one that nobody builds, else None: wait."""
        self._pump()
        known = [(task, self._part.get((key, task.route))) for task in tasks]
        for task, part in known:
            if part in self._ready:
                return task
        for task, part in known:
            if part not in self._running:
                return task
        late = time.monotonic() - WAIT_SECONDS
        return next((task for task, part in known if part and self._running[part].began < late), None)

    def take(self, key: str, route: Route) -> Any:
        """Ray's reference to the build of a route, None when the worker is to build itself."""
        part = self._part.pop((key, route), None)
        if part is None:
            return None
        build = self._ready.get(part)
        self._wanted[part] -= 1
        if not self._wanted[part] or build is None:
            self._forget(part)
        return build.files if build else None

    def cancel(self) -> None:
        """Ends what is under way."""
        for part in list(self._running):
            self._forget(part)

    @property
    def busy(self) -> bool:
        """Whether builds are under way."""
        return bool(self._running)

    def _forget(self, part: tuple[str, Route]) -> None:
        import ray

        self._waiting.pop(part, None)
        self._ready.pop(part, None)
        build = self._running.pop(part, None)
        if build is not None:
            ray.cancel(build.done, force=True)

    def _pump(self) -> None:
        """Takes in what is built and begins more, as many ahead as there are cores."""
        import ray

        if self._running:
            references = {build.done: part for part, build in self._running.items()}
            for reference in ray.wait(list(references), num_returns=len(references), timeout=0)[0]:
                part = references[reference]
                build = self._running.pop(part)
                try:
                    if ray.get(reference):
                        self._ready[part] = build
                except ray.exceptions.RayError:
                    pass  # whoever measures builds it
        while self._waiting and len(self._running) < self._cores and len(self._ready) < self._cores:
            part = next(iter(self._waiting))
            build = self._running[part] = self._waiting.pop(part)
            task: Any = ray.remote(build_elsewhere)
            task = task.options(num_returns=2, max_retries=1, scheduling_strategy="SPREAD")
            build.done, build.files = task.remote(*build.order)
            build.began = time.monotonic()
