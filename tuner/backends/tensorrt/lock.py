"""One lock per GPU with two sides: many engine loads beside each other, a timing alone.

Ahead-of-time builds need no lock: they run beside anything. The locks of a process that ends are dropped.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

POLL_SECONDS = 0.01


class GpuLock:
    """A process's hold on a GPU: none, shared (loading) or alone (timing).

    Waiting timings go before new loads, so that loads come in waves with the timings of the last wave in
    between, and no timing waits for a load that began after it.

    Attributes:
        waiting: what is entered while another process is waited for.
    """

    def __init__(self, gpu: str, folder: Path | None = None) -> None:
        """Takes a name of the GPU, the same in every process."""
        self._folder = folder or Path(tempfile.gettempdir())
        self._name = f"routecast-{os.getuid()}-{gpu}"
        self._gate = -1
        self._waiting = -1
        self._alone = False
        self.waiting: Callable[[], AbstractContextManager[object]] = nullcontext

    def share(self) -> None:
        """Waits until nobody times or waits to, then holds the shared side; does nothing when held."""
        if self._gate >= 0:
            return
        gate, waiting = self._open("gpu"), self._open("timing")
        if not _shared(waiting, gate):
            with self.waiting():
                while not _shared(waiting, gate):
                    time.sleep(POLL_SECONDS)
        os.close(waiting)
        self._gate = gate

    def alone(self) -> None:
        """Waits until nobody else loads or times, then holds the GPU alone; does nothing when held."""
        if self._alone:
            return
        self.release()
        self._waiting = self._open("timing")
        fcntl.flock(self._waiting, fcntl.LOCK_SH)
        self._gate = self._open("gpu")
        if not _try(self._gate, fcntl.LOCK_EX):
            with self.waiting():
                fcntl.flock(self._gate, fcntl.LOCK_EX)
        self._alone = True

    def release(self) -> None:
        """Lets go of either side."""
        for descriptor in (self._gate, self._waiting):
            if descriptor >= 0:
                os.close(descriptor)
        self._gate = self._waiting = -1
        self._alone = False

    def _open(self, kind: str) -> int:
        return os.open(self._folder / f"{self._name}.{kind}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _shared(waiting: int, gate: int) -> bool:
    """Takes the gate's shared side, unless somebody times or waits to."""
    if _try(waiting, fcntl.LOCK_EX) and _try(gate, fcntl.LOCK_SH):
        return True
    fcntl.flock(waiting, fcntl.LOCK_UN)
    return False


def _try(descriptor: int, side: int) -> bool:
    try:
        fcntl.flock(descriptor, side | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
