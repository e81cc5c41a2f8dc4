"""Measuring on many machines and GPUs: a Ray cluster's workers measure, the driver stores.

Each GPU, or each machine where the cores are what is timed, has one worker at a time. Models travel to the workers as
bytes; what comes back is checked before it is stored; credentials of a history never leave the driver.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from routecast.datasets.environment import Environment
from routecast.datasets.errors import RoutecastError
from routecast.tuner.backends.base import Backend
from routecast.tuner.backends.tensorrt.lock import GpuLock
from routecast.tuner.fleet.bench import FleetBench
from routecast.tuner.fleet.builds import Builds
from routecast.tuner.fleet.crew import Crew, Worker, connect, disconnect
from routecast.tuner.fleet.remote import CORES
from routecast.tuner.fleet.round import Round, Sent
from routecast.tuner.measure.subjects import Outcome, Plan, Subject, Unmeasured

if TYPE_CHECKING:
    from routecast.tuner.results import Observer

__all__ = ["Fleet", "FleetBench"]

PATIENCE_SECONDS = 120.0
"""How long work waits for a worker when there is none."""


class Fleet:
    """The workers of a Ray cluster that measure with one backend. Leaving the context ends them.

    Ray prints what befalls a cluster on standard output, where results belong: meanwhile that goes to standard error.

    Attributes:
        crew: the workers.
        observer: is told what happens.
        patience: seconds to wait for a worker while there is none.
    """

    def __init__(
        self, address: str, backend: Backend, observer: Observer, *, patience: float = PATIENCE_SECONDS
    ) -> None:
        """Connects to a cluster, unless this process is connected already.

        Args:
            address: ``HOST:PORT`` of the head, ``auto`` on a machine of the cluster, or ``ray://HOST:PORT``.
            backend: what the workers measure with.
            observer: is told what happens.
            patience: seconds to wait for a worker while there is none.

        Raises:
            MissingPackage: Ray is not installed.
            UsageError: nobody answers at the address, or driver and cluster have different versions.
        """
        self._leave = contextlib.ExitStack()
        if connect(address):
            self._leave.callback(disconnect)
            self._leave.enter_context(contextlib.redirect_stdout(sys.stderr))
        self._backend = backend
        self.crew = Crew(backend, observer.note)
        self.observer = observer
        self.patience = patience

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._leave:
            self.crew.close()

    def measure(self, subjects: Iterable[Subject], plan: Plan, late: Callable[[], bool]) -> Iterator[Outcome]:
        """Measures subject after subject on all workers and yields each outcome as it comes.

        Args:
            subjects: asked for when a worker wants one.
            plan: chooses the routes of each, once for each kind of device.
            late: says when it is time to stop; what is being measured is then ended and not recorded.

        Raises:
            RoutecastError: there is no worker, or none is left.
        """
        unsent: list[Unmeasured] = []
        yield from self.round(self._send(iter(subjects), unsent), plan, late)
        yield from unsent

    def bench(self, subject: Subject, folder: Path, like: Environment | None = None) -> FleetBench:
        """Opens one model, see ``FleetBench``."""
        return FleetBench(self, subject, folder, like)

    def round(
        self,
        subjects: Iterable[Sent],
        plan: Plan,
        late: Callable[[], bool],
        suitable: Callable[[Worker], bool] = lambda _: True,
    ) -> Iterator[Outcome]:
        """One round, see ``Round``."""
        return Round(
            self.crew,
            subjects,
            plan,
            late,
            builds=Builds(self._backend, self.crew.cores),
            stage=self.observer.stage,
            suitable=suitable,
            patience=self.patience,
        ).outcomes()

    def _send(self, subjects: Iterator[Subject], unsent: list[Unmeasured]) -> Iterator[Sent]:
        """Sends subjects; making them waits while a worker of this machine times on its cores."""
        cores = GpuLock(CORES)
        while True:
            if not self._backend.uses_gpu:
                cores.alone()
            try:
                subject = next(subjects, None)
                sent = None if subject is None else self._sent(subject, unsent)
            finally:
                cores.release()
            if subject is None:
                return
            if sent is not None:
                yield sent

    def _sent(self, subject: Subject, unsent: list[Unmeasured]) -> Sent | None:
        try:
            return Sent.send(subject)
        except RoutecastError as error:
            unsent.append(Unmeasured(subject.model.name, error))
            return None
