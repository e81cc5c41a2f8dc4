"""A history as an append-only file of JSON lines, for hosts that only measure."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from routecast.datasets.environment import Environment
from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.graph import Graph
from routecast.datasets.measurement import Measurement
from routecast.datasets.records import Records

STARTS = (b'{"measurement":', b'{"graph":', b'{"environment":')
"""How each kind of line starts."""

Parts = tuple[list[Measurement], dict[str, Graph], dict[str, Environment]]


class Journal:
    """Stores what ``History`` stores, needing only the standard library; one process writes to it at a time.

    Each line is on disk before the call that adds it returns. A kill can tear only the line being written;
    opening the journal again drops it. Adding what the journal holds does nothing.
    """

    def __init__(self, path: str | Path) -> None:
        """Opens a journal, made when it does not exist.

        Raises:
            UsageError: it cannot be opened, another process writes to it, or a line in it is damaged.
        """
        self.path = Path(path)
        self.place = str(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UsageError(f"cannot open the journal {self.path}: {error.strerror}") from error
        try:
            self._lock()
            measurements, graphs, environments = _read(self._content(), self.path)
            self._drop_torn_line()
        except BaseException:
            os.close(self._file)
            raise
        self._held = {measurement.identity for measurement in measurements} | set(graphs) | set(environments)

    def _lock(self) -> None:
        # A POSIX lock and not flock: children forked to measure must not keep it when this process is killed.
        # Closing any other descriptor of the file would release it, so everything is read through this one.
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise UsageError(
                f"another process writes to the journal {self.path}; wait for it, or use another file"
            ) from error

    def _content(self) -> bytes:
        content = bytearray()
        while part := os.pread(self._file, 1 << 24, len(content)):
            content += part
        return bytes(content)

    def _drop_torn_line(self) -> None:
        """Makes the file end after its last whole line."""
        content = self._content()
        last = content.rpartition(b"\n")[2]
        if not last:
            return
        if _parse(last) is not None:
            os.write(self._file, b"\n")
        elif any(last.startswith(start[: len(last)]) for start in STARTS):
            os.ftruncate(self._file, len(content) - len(last))
        else:
            raise UsageError(f"{self.path} is not a journal; give the path of a journal or of a new file")

    def add_graph(self, graph: Graph) -> None:
        """Stores a graph once per fingerprint."""
        self._append("graph", graph.fingerprint, graph.to_json())

    def add_environment(self, environment: Environment) -> None:
        """Stores an environment once per identity."""
        self._append("environment", environment.identity, environment.to_json())

    def add(self, measurement: Measurement) -> None:
        """Stores a measurement once per identity."""
        self._append("measurement", measurement.identity, measurement.to_json())

    def add_many(self, measurements: Iterable[Measurement]) -> int:
        """Stores several measurements.

        Returns:
            How many were new.
        """
        before = len(self._held)
        for measurement in measurements:
            self.add(measurement)
        return len(self._held) - before

    def _append(self, kind: str, key: str, content: dict[str, Any]) -> None:
        if key in self._held:
            return
        line = json.dumps({kind: content}, separators=(",", ":")).encode() + b"\n"
        start = os.fstat(self._file).st_size
        try:
            written = 0
            while written < len(line):
                written += os.write(self._file, line[written:])
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, start)
            raise RoutecastError(
                f"cannot write to the journal {self.path}: {error.strerror}; free some space and run again"
            ) from error
        self._held.add(key)

    def records(self) -> Records:
        """All it holds."""
        return Records(*_read(self._content(), self.path))

    def close(self) -> None:
        """Closes the file; closing twice does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_journal(path: Path) -> Parts:
    """Reads a journal, each measurement once; a torn last line is skipped.

    Raises:
        UsageError: there is no such file, or a line other than the last is damaged.
    """
    try:
        return _read(path.read_bytes(), path)
    except OSError as error:
        raise UsageError(f"cannot read the journal {path}: {error.strerror}") from error


def _read(content: bytes, path: Path) -> Parts:
    lines = content.split(b"\n")
    measurements: dict[str, Measurement] = {}
    graphs: dict[str, Graph] = {}
    environments: dict[str, Environment] = {}
    for number, line in enumerate(lines, start=1):
        entry = _parse(line)
        if isinstance(entry, Measurement):
            measurements.setdefault(entry.identity, entry)
        elif isinstance(entry, Graph):
            graphs.setdefault(entry.fingerprint, entry)
        elif isinstance(entry, Environment):
            environments.setdefault(entry.identity, entry)
        elif line and number < len(lines):
            raise UsageError(f"{path}, line {number} is not a journal's line; the file is damaged or no journal")
    return list(measurements.values()), graphs, environments


def _parse(line: bytes) -> Measurement | Graph | Environment | None:
    """What a line holds, None when it is torn or damaged."""
    try:
        ((kind, content),) = json.loads(line).items()
        if kind == "measurement":
            return Measurement.from_json(content)
        if kind == "graph":
            return Graph.from_json(content)
        if kind == "environment":
            return Environment.from_json(content)
    except (ValueError, TypeError, KeyError, AttributeError, UsageError):
        pass
    return None
