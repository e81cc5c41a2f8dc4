"""The history: a database of all measurements, with their graphs and environments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Row, Table, func, select
from sqlalchemy.dialects.sqlite import insert

from routecast.datasets import database
from routecast.datasets.database import environments, errors_in, graphs, measurements, writing
from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.graph import Graph
from routecast.datasets.history_stats import HistoryStats, summarise
from routecast.datasets.measurement import Measurement, Status
from routecast.datasets.records import Records

__all__ = ["History", "HistoryStats"]

STREAM = 256
"""Rows fetched at once while measurements are read."""


class History:
    """A store of measurements in an SQLite file that several processes may use at once.

    A measurement is on disk before the call that adds it returns. Adding what is there already does nothing.
    """

    def __init__(self, url_or_path: str | Path | None = None) -> None:
        """Opens a history, made when it does not exist.

        Args:
            url_or_path: a path or an ``sqlite:///path`` URL; None for ``$ROUTECAST_HISTORY``, or
                ``~/.local/share/routecast/history.db`` when that is not set.

        Raises:
            UsageError: it cannot be opened, is no history, or was written by a newer routecast.
            RoutecastError: the database is locked or the disk full.
        """
        self.path = database.locate(url_or_path)
        self._engine = database.connect(self.path)
        with errors_in(self.path):
            database.prepare(self._engine, self.path)

    def add_graph(self, graph: Graph) -> None:
        """Stores a graph once per fingerprint."""
        self._insert(graphs, [_graph_row(graph)])

    def add_environment(self, environment: Environment) -> None:
        """Stores an environment once per identity."""
        self._insert(environments, [_environment_row(environment)])

    def add(self, measurement: Measurement) -> None:
        """Stores a measurement once per identity."""
        self._insert(measurements, [_measurement_row(measurement)])

    def add_many(self, added: Iterable[Measurement]) -> int:
        """Stores several measurements in one transaction: all of them, or none when it fails.

        Returns:
            How many were new.
        """
        return self._insert(measurements, [_measurement_row(measurement) for measurement in added])

    def _insert(self, table: Table, rows: list[dict[str, Any]]) -> int:
        if not rows:
            return 0
        with errors_in(self.path), writing(self._engine) as connection:
            return connection.execute(insert(table).on_conflict_do_nothing(), rows).rowcount

    def graph(self, fingerprint: str) -> Graph:
        """The graph with this fingerprint.

        Raises:
            UsageError: the history does not hold it.
        """
        return Graph.from_json(self._content(graphs, fingerprint, "graph"))

    def environment(self, identity: str) -> Environment:
        """The environment with this identity.

        Raises:
            UsageError: the history does not hold it.
        """
        return Environment.from_json(self._content(environments, identity, "environment"))

    def _content(self, table: Table, key: str, what: str) -> dict[str, Any]:
        column = next(iter(table.primary_key))
        with errors_in(self.path), self._engine.connect() as connection:
            text = connection.scalar(select(table.c.content).where(column == key))
        if text is None:
            raise UsageError(f"the history {self.path} holds no {what} {key!r}")
        content: dict[str, Any] = json.loads(text)
        return content

    def measurements(
        self,
        *,
        fingerprint: str | None = None,
        environment: str | None = None,
        run: str | None = None,
        family: str | None = None,
        status: Status | None = None,
    ) -> Iterator[Measurement]:
        """Reads the measurements that match all that is given, in the order they were stored.

        Rows are streamed; what is stored meanwhile is not seen.
        """
        query = select(measurements.c.content).order_by(measurements.c.number)
        wanted = {
            "fingerprint": fingerprint, "environment": environment, "run": run, "family": family,
            "status": None if status is None else str(status),
        }  # fmt: skip
        for name, value in wanted.items():
            if value is not None:
                query = query.where(measurements.c[name] == value)
        with errors_in(self.path), self._engine.connect() as connection:
            for text in connection.execution_options(yield_per=STREAM).execute(query).scalars():
                yield Measurement.from_json(json.loads(text))

    def __len__(self) -> int:
        with errors_in(self.path), self._engine.connect() as connection:
            return connection.scalar(select(func.count()).select_from(measurements)) or 0

    def records(self) -> Records:
        """All it holds, in memory."""
        with errors_in(self.path), self._engine.connect() as connection:
            stored = _contents(connection.execute(select(graphs)).all())
            places = _contents(connection.execute(select(environments)).all())
        return Records(
            list(self.measurements()),
            {key: Graph.from_json(content) for key, content in stored.items()},
            {key: Environment.from_json(content) for key, content in places.items()},
        )

    def import_records(self, records: Records) -> int:
        """Stores records, in one transaction for each kind.

        Returns:
            How many measurements were new.
        """
        self._insert(graphs, [_graph_row(graph) for graph in records.graphs.values()])
        self._insert(environments, [_environment_row(place) for place in records.environments.values()])
        return self.add_many(records.measurements)

    def stats(self) -> HistoryStats:
        """What it holds, counted."""
        with errors_in(self.path), self._engine.connect() as connection:
            return summarise(connection, self.path)

    def close(self) -> None:
        """Closes the database; closing twice does nothing."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


def _contents(rows: Iterable[Row[Any]]) -> dict[str, dict[str, Any]]:
    return {key: json.loads(text) for key, text in map(tuple, rows)}


def _graph_row(graph: Graph) -> dict[str, Any]:
    return {"fingerprint": graph.fingerprint, "content": _text(graph.to_json())}


def _environment_row(environment: Environment) -> dict[str, Any]:
    return {"identity": environment.identity, "content": _text(environment.to_json())}


def _measurement_row(measurement: Measurement) -> dict[str, Any]:
    names = ("identity", "fingerprint", "environment", "run", "family", "model", "created", "ratio")
    row = {name: getattr(measurement, name) for name in names}
    return {
        **row,
        "status": str(measurement.status),
        "route": str(measurement.route),
        "content": _text(measurement.to_json()),
    }
