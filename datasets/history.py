"""The history: a database of all measurements, with their graphs and environments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, Row, Table, func, select
from sqlalchemy.exc import DBAPIError

from routecast.datasets import database, schema, sizes, tables
from routecast.datasets.database_errors import errors_in
from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.exclusive import exclusive
from routecast.datasets.graph import Graph
from routecast.datasets.history_stats import HistoryStats, summarise
from routecast.datasets.measurement import Measurement, Status
from routecast.datasets.patience import OPENING_SECONDS, PATIENCE_SECONDS, Patience
from routecast.datasets.places import is_server, locate, shown
from routecast.datasets.records import Records
from routecast.datasets.route import Route
from routecast.datasets.tables import measurements, route_digest

__all__ = ["History", "HistoryStats"]

STREAM = 256
"""Rows fetched at once while measurements are read."""

T = TypeVar("T")


class History:
    """A store of measurements that several processes may use at once: an SQLite file, or a PostgreSQL database.

    A measurement is on disk before the call that adds it returns. Adding what is there already does nothing, and
    nothing that is there is ever changed. When a server goes away, what was asked of it is asked again for a minute.

    Attributes:
        place: the database for people, without its password.
        path: the file, None when it is on a server.
    """

    def __init__(self, url_or_path: str | Path | None = None) -> None:
        """Opens a history, made when it does not exist.

        Args:
            url_or_path: a path, an ``sqlite:///path`` or a ``postgresql://user@host:port/database`` URL; None for
                ``$ROUTECAST_HISTORY``, or ``~/.local/share/routecast/history.db`` when that is not set. Without a
                password in the URL, libpq looks for it in ``PGPASSWORD`` and ``~/.pgpass``.

        Raises:
            UsageError: it cannot be opened, is no history, was written by a newer routecast, or is on a server and
                must be upgraded (``routecast history migrate``).
            RoutecastError: the database is locked, the disk full, or the server out of reach.
            MissingPackage: PostgreSQL's driver is not installed.
        """
        url = locate(url_or_path)
        self.place = shown(url)
        self.path = None if is_server(url) else Path(self.place)
        self._engine = database.connect(url)
        try:
            self._patiently(lambda: schema.prepare(self._engine, self.place), OPENING_SECONDS)
        except BaseException:
            self.close()
            raise

    def add_graph(self, graph: Graph) -> None:
        """Stores a graph once per fingerprint."""
        self._insert(tables.graphs, [_graph_row(graph)])

    def add_environment(self, environment: Environment) -> None:
        """Stores an environment once per identity."""
        self._insert(tables.environments, [_environment_row(environment)])

    def add(self, measurement: Measurement) -> None:
        """Stores a measurement once per identity.

        Raises:
            UsageError: it is larger than a history takes (``routecast.datasets.sizes``).
        """
        self._insert(measurements, [_measurement_row(measurement)])

    def add_many(self, added: Iterable[Measurement]) -> int:
        """Stores several measurements in one transaction: all of them, or none when it fails.

        Returns:
            How many were new.

        Raises:
            UsageError: one is larger than a history takes.
        """
        return self._insert(measurements, [_measurement_row(measurement) for measurement in added])

    def _insert(self, table: Table, rows: list[dict[str, Any]]) -> int:
        if not rows:
            return 0
        for row in rows:
            sizes.check_row(table.name, row)
        statement = database.insert_new(self._engine, table)

        def insert() -> int:
            with database.writing(self._engine) as connection:
                return connection.execute(statement, rows).rowcount

        return self._patiently(insert)

    def _read(self, work: Callable[[Connection], T]) -> T:
        def read() -> T:
            with self._engine.connect() as connection:
                return work(connection)

        return self._patiently(read)

    def _patiently(self, work: Callable[[], T], seconds: float | None = None) -> T:
        """Does something that may be done twice, again while the server is away."""
        patience = Patience(PATIENCE_SECONDS if seconds is None else seconds)
        with errors_in(self.place):
            while True:
                try:
                    return work()
                except DBAPIError as error:
                    patience.wait(error)

    def graph(self, fingerprint: str) -> Graph:
        """The graph with this fingerprint.

        Raises:
            UsageError: the history does not hold it.
        """
        return Graph.from_json(self._content(tables.graphs, fingerprint, "graph"))

    def environment(self, identity: str) -> Environment:
        """The environment with this identity.

        Raises:
            UsageError: the history does not hold it.
        """
        return Environment.from_json(self._content(tables.environments, identity, "environment"))

    def environments(self) -> dict[str, Environment]:
        """All environments by identity."""
        rows = self._read(lambda connection: connection.execute(select(tables.environments)).all())
        return {key: Environment.from_json(content) for key, content in _contents(rows).items()}

    def comparable(self, here: Environment) -> set[str]:
        """Identities of the environments whose measurements may stand for those of one."""
        return {identity for identity, place in self.environments().items() if here.comparable(place)}

    def known(self, fingerprint: str, environments: Iterable[str], routes: Iterable[Route]) -> set[Route]:
        """Those of some routes that were measured on a graph, whatever came of it, in one of some environments.

        It is answered by an index alone, without reading a measurement.

        Args:
            fingerprint: of the graph.
            environments: identities of environments whose measurements count.
            routes: canonical routes.
        """
        query = select(measurements.c.route_digest).where(
            measurements.c.fingerprint == fingerprint, measurements.c.environment.in_(list(environments))
        )
        digests = set(self._read(lambda connection: connection.scalars(query).all()))
        return {route for route in routes if route_digest(route) in digests}

    def _content(self, table: Table, key: str, what: str) -> dict[str, Any]:
        column = next(iter(table.primary_key))
        text = self._read(lambda connection: connection.scalar(select(table.c.content).where(column == key)))
        if text is None:
            raise UsageError(f"the history {self.place} holds no {what} {key!r}")
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
        lean: bool = False,
    ) -> Iterator[Measurement]:
        """Reads the measurements that match all that is given, in the order they were stored.

        Rows are streamed, 256 at a time, so that a history larger than memory can be read. What is stored meanwhile
        is not seen, unless the server goes away: reading then goes on after the last row, with what is there by then.
        ``lean`` leaves out the local profiles of all routes but the default one, which is several times faster.
        """
        wanted = {
            "fingerprint": fingerprint, "environment": environment, "run": run, "family": family,
            "status": None if status is None else str(status),
        }  # fmt: skip
        query = select(measurements.c.number, measurements.c.content).order_by(measurements.c.number)
        for name, value in wanted.items():
            if value is not None:
                query = query.where(measurements.c[name] == value)
        last = 0
        patience = Patience(PATIENCE_SECONDS)
        with errors_in(self.place):
            while True:
                try:
                    with self._engine.connect() as connection:
                        left = query.where(measurements.c.number > last)
                        for number, text in connection.execution_options(yield_per=STREAM).execute(left):
                            content = json.loads(text)
                            if lean and content["route"]:
                                content["local_profile"] = ()
                            yield Measurement.from_json(content)
                            last = number
                            patience.renew()
                    return
                except DBAPIError as error:
                    patience.wait(error)

    def __len__(self) -> int:
        return self._read(lambda connection: connection.scalar(select(func.count()).select_from(measurements))) or 0

    def records(self) -> Records:
        """All it holds, in memory."""
        stored = self._read(lambda connection: connection.execute(select(tables.graphs)).all())
        return Records(
            list(self.measurements()),
            {key: Graph.from_json(content) for key, content in _contents(stored).items()},
            self.environments(),
        )

    def import_records(self, records: Records) -> int:
        """Stores records, in one transaction for each kind.

        Returns:
            How many measurements were new.
        """
        self._insert(tables.graphs, [_graph_row(graph) for graph in records.graphs.values()])
        self._insert(tables.environments, [_environment_row(place) for place in records.environments.values()])
        return self.add_many(records.measurements)

    def stats(self) -> HistoryStats:
        """What it holds, counted."""
        return self._read(lambda connection: summarise(connection, self.path))

    def alone(self, purpose: str) -> AbstractContextManager[None]:
        """Keeps other processes from doing the same with this history while a block runs.

        Args:
            purpose: what is done, one word.

        Raises:
            Busy: on entering, when another process does it.
        """
        return exclusive(self._engine, self.path, purpose)

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
    sizes.check_measurement(measurement)
    names = ("identity", "fingerprint", "environment", "run", "family", "model", "created", "ratio")
    row = {name: getattr(measurement, name) for name in names}
    return {
        **row,
        "status": str(measurement.status),
        "route": str(measurement.route),
        "route_digest": route_digest(measurement.route),
        "content": _text(measurement.to_json()),
    }
