"""The parent's side of measuring: gives jobs to the zygote and survives whatever their children do."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from routecast.datasets.errors import RoutecastError
from routecast.datasets.measurement import Status
from routecast.tuner.measure.worker import WAITING, Job

POLL_SECONDS = 0.2
START_SECONDS = 120.0
LONGEST_WAIT_SECONDS = 1800.0
"""How long a child may wait for a device that another process holds."""


@dataclass(frozen=True)
class Limits:
    """What a child may use.

    Attributes:
        seconds: wall-clock time of one job, without the time that it waits for a device which another process holds.
        bytes: resident memory; None is four fifths of the machine's.
    """

    seconds: float = 120.0
    bytes: int | None = None

    @property
    def memory(self) -> int:
        """The memory limit in bytes."""
        return self.bytes if self.bytes is not None else int(psutil.virtual_memory().total * 0.8)


class Runner:
    """Runs jobs one at a time, each in a forked child.

    A child that crashes, hangs or takes too much memory is a result like any other.
    """

    def __init__(self, preload: Sequence[str], limits: Limits) -> None:
        """Takes the modules that the zygote imports before it forks, and what a child may use."""
        self._preload = tuple(preload)
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._jobs = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def run(self, job: Job) -> dict[str, Any]:
        """Runs one job and returns its result.

        A child that ended without a result gives ``status`` and ``message`` that say how.
        """
        folder = Path(job.folder)
        folder.mkdir(parents=True, exist_ok=True)
        process = self._started()
        self._jobs += 1
        self._send(process, {"id": self._jobs, "job": str(job.save())})
        ending = self._wait(process, self._jobs, folder / WAITING)
        result = folder / "result.json"
        if result.exists():
            return dict(json.loads(result.read_text()))
        return _without_result(folder, ending, self._limits)

    def close(self) -> None:
        """Ends the zygote and with it every child."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-m", "routecast.tuner.measure.zygote", *self._preload]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._pending = b""
            if not self._receive(self._process, START_SECONDS):
                raise RoutecastError(
                    f"the measuring process did not start within {START_SECONDS:.0f} s: run `routecast doctor`"
                )
        return self._process

    def _send(self, process: subprocess.Popen[bytes], message: Mapping[str, object]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()

    def _receive(self, process: subprocess.Popen[bytes], timeout: float) -> dict[str, Any] | None:
        """The next message, None when none comes in time.

        Raises:
            RoutecastError: the zygote has ended.
        """
        assert process.stdout is not None
        end = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(max(0.0, end - time.monotonic())):
                    return None
                received = os.read(process.stdout.fileno(), 65536)
                if not received:
                    raise RoutecastError("the measuring process ended unexpectedly: run `routecast doctor`")
                self._pending += received
        line, self._pending = self._pending.split(b"\n", 1)
        return dict(json.loads(line))

    def _wait(self, process: subprocess.Popen[bytes], job: int, waiting: Path) -> _Ending:
        """Waits for a job's child to end, and ends it when it takes too long or too much.

        While the file ``waiting`` is there, the child waits for others, which is not its fault.
        """
        pid, reason = 0, None
        worked = waited = 0.0
        last = time.monotonic()
        while True:
            message = self._receive(process, POLL_SECONDS)
            now = time.monotonic()
            if waiting.exists():
                waited += now - last
            else:
                worked += now - last
            last = now
            if message is not None and message["id"] == job:
                if "exit" in message:
                    return _Ending(int(message["exit"]), reason)
                pid = int(message["pid"])
            elif pid and reason is None:
                reason = self._excess(pid, worked, waited)
                if reason is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)

    def _excess(self, pid: int, worked: float, waited: float) -> str | None:
        if worked > self._limits.seconds:
            return "time"
        if waited > LONGEST_WAIT_SECONDS:
            return "wait"
        try:
            used = psutil.Process(pid).memory_info().rss
        except psutil.NoSuchProcess:
            return None
        return "memory" if used > self._limits.memory else None


@dataclass(frozen=True)
class _Ending:
    """How a child ended: its exit code (minus a signal's number) and the limit it was killed for, if any."""

    code: int
    reason: str | None


def _without_result(folder: Path, ending: _Ending, limits: Limits) -> dict[str, Any]:
    stage_file = folder / "stage"
    stage = stage_file.read_text() if stage_file.exists() else "starting"
    if ending.reason == "time":
        return {"status": Status.TIMED_OUT, "message": f"no result within {limits.seconds:.0f} s, killed while {stage}"}
    if ending.reason == "wait":
        return {
            "fatal": f"another process of routecast has held the device for {LONGEST_WAIT_SECONDS / 60:.0f} minutes: "
            "end it, or let it end, then go on with --resume"
        }
    if ending.reason == "memory":
        return {
            "status": Status.CRASHED,
            "message": f"used more than {limits.memory / 1e9:.1f} GB of memory, killed while {stage}",
        }
    cause = signal.Signals(-ending.code).name if ending.code < 0 else f"exit status {ending.code}"
    return {"status": Status.CRASHED, "message": f"the process ended with {cause} while {stage}{_last_words(folder)}"}


def _last_words(folder: Path) -> str:
    """The last line the child printed, which names the exception if there was one."""
    log = folder / "log"
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    said = [line.strip() for line in lines if line.strip()]
    return f": {said[-1][:200]}" if said else ""
