"""Reads histories as streams and writes what training needs of them into an ``ExampleStore``.

Measurements come in any order, and all those of one model and environment make its examples. So they are first copied,
stripped of what training does not look at, into a table that SQLite sorts on disk, and then read back group by group.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from routecast.costmodel.features import for_environment, graph_features
from routecast.datasets.environment import Environment
from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.graph import Graph
from routecast.datasets.measurement import Measurement
from routecast.datasets.records import Records
from routecast.training.examples import Example, make_examples
from routecast.training.store import (
    COLUMNS,
    TABLES,
    ExampleStore,
    Summary,
    measurement_row,
    read_measurements,
    write_example,
    write_graph,
)

Known = TypeVar("Known", Graph, Environment)


class Source(Protocol):
    """A history that is read as a stream, such as ``History`` and ``ParquetHistory``."""

    def measurements(self, *, lean: bool) -> Iterator[Measurement]:
        """All measurements, in the order they were stored; a lean one may lack all that training does not look at."""

    def graph(self, fingerprint: str) -> Graph:
        """A graph; an unknown one is a ``UsageError``."""

    def environment(self, identity: str) -> Environment:
        """An environment; an unknown one is a ``UsageError``."""


class RecordsSource:
    """Records as a source."""

    def __init__(self, records: Records) -> None:
        """Takes the records."""
        self._records = records

    def measurements(self, *, lean: bool) -> Iterator[Measurement]:
        """See ``Source``."""
        del lean  # all of it is in memory as it is
        return iter(self._records.measurements)

    def graph(self, fingerprint: str) -> Graph:
        """See ``Source``."""
        return _known(self._records.graphs, fingerprint)

    def environment(self, identity: str) -> Environment:
        """See ``Source``."""
        return _known(self._records.environments, identity)


def _known(held: dict[str, Known], key: str) -> Known:
    if key not in held:
        raise UsageError(f"the records do not hold {key!r}")
    return held[key]


def gather(sources: Sequence[Source], path: Path) -> ExampleStore:
    """Writes the examples of all sources into a new file.

    A measurement that several sources hold counts once. Measurements whose graph or environment no source has, and
    graphs without operators, give no example.

    Args:
        sources: the histories, the largest last: the identities of the others are kept in memory.
        path: of the file, which must not exist.

    Raises:
        UsageError: a source is damaged.
        RoutecastError: the file cannot be written.
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            # The file lives as long as the training run: nothing is gained by its surviving a crash.
            for setting in ("journal_mode = OFF", "synchronous = OFF", "temp_store = FILE", "cache_size = -32768"):
                database.execute(f"PRAGMA {setting}")
            database.executescript(TABLES)
            database.execute("BEGIN")
            _copy_measurements(sources, database)
            seen = _write_examples(sources, database)
            summary = Summary(*_digest(database), seen.timed, seen.spread, sorted(seen.ops), sorted(seen.settings))
            database.execute("INSERT INTO about VALUES (?)", (json.dumps(asdict(summary)),))
            database.execute("COMMIT")
    except sqlite3.Error as error:
        raise RoutecastError(
            f"cannot write the training examples to {path}: {error}; free some space or set TMPDIR to another folder"
        ) from error
    return ExampleStore(path)


def _copy_measurements(sources: Sequence[Source], database: sqlite3.Connection) -> None:
    subjects: dict[tuple[str, str], int] = {}
    rows = (
        measurement_row(item, subjects.setdefault((item.fingerprint, item.environment), len(subjects)))
        for item in _distinct(sources)
    )
    database.executemany(
        f"INSERT INTO measurement (subject, {', '.join(COLUMNS)}, layers) VALUES "  # noqa: S608
        f"({', '.join('?' * (len(COLUMNS) + 2))})",
        rows,
    )
    database.executemany("INSERT INTO subject VALUES (?, ?, ?)", ((number, *key) for key, number in subjects.items()))
    database.execute("CREATE INDEX of_subject ON measurement (subject)")


def _distinct(sources: Sequence[Source]) -> Iterator[Measurement]:
    earlier: set[str] = set()
    for source in sources:
        for measurement in source.measurements(lean=True):
            if measurement.identity not in earlier:
                if source is not sources[-1]:
                    earlier.add(measurement.identity)
                yield measurement


def _digest(database: sqlite3.Connection) -> tuple[str, int]:
    """``Records.digest`` of the measurements, and their number."""
    digest, count = hashlib.sha256(), 0
    for (identity,) in database.execute("SELECT identity FROM measurement ORDER BY identity"):
        digest.update(("\n" if count else "").encode() + identity.encode())
        count += 1
    return digest.hexdigest()[:16], count


@dataclass
class _Seen:
    """What the examples hold, counted while they pass."""

    ops: set[str] = field(default_factory=set)
    settings: set[str] = field(default_factory=set)
    timed: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, graph: Graph, example: Example) -> None:
        known = example.log_ratio[~np.isnan(example.log_ratio)].astype(np.float64)
        self.ops |= graph.ops
        self.settings |= {f"{name}={value}" for name, value in example.tokens}
        self.timed += len(known)
        self.total += float(known.sum())
        self.squares += float(known @ known)

    @property
    def spread(self) -> float:
        """Standard deviation of the log ratios."""
        if not self.timed:
            return float("nan")
        return float(np.sqrt(max(0.0, self.squares / self.timed - (self.total / self.timed) ** 2)))


def _write_examples(sources: Sequence[Source], database: sqlite3.Connection) -> _Seen:
    """Encodes each graph once, for all the environments it was measured in."""
    seen = _Seen()
    environments: dict[str, Environment | None] = {}
    for (fingerprint,) in database.execute("SELECT DISTINCT fingerprint FROM subject").fetchall():
        graph = _graph(sources, fingerprint)
        if graph is None or not graph.nodes:
            continue
        features = None
        for subject, identity in database.execute(
            "SELECT number, environment FROM subject WHERE fingerprint = ?", (fingerprint,)
        ).fetchall():
            if identity not in environments:
                environments[identity] = _environment(sources, identity, database)
            environment = environments[identity]
            if environment is None:
                continue
            if features is None:
                features = graph_features(graph, environment)
                write_graph(database, graph, features)
            features = for_environment(features, graph, environment)
            for example in make_examples(graph, environment, features, list(read_measurements(database, subject))):
                write_example(database, example, subject)
                seen.add(graph, example)
    return seen


def _graph(sources: Sequence[Source], fingerprint: str) -> Graph | None:
    for source in sources:
        try:
            return source.graph(fingerprint)
        except UsageError:
            continue
    return None


def _environment(sources: Sequence[Source], identity: str, database: sqlite3.Connection) -> Environment | None:
    for source in sources:
        try:
            environment = source.environment(identity)
        except UsageError:
            continue
        content = json.dumps(environment.to_json(), separators=(",", ":"))
        database.execute("INSERT INTO environment VALUES (?, ?)", (identity, content))
        return environment
    return None
