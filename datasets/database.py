"""How routecast talks to a history's database, in SQLite and in PostgreSQL."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.dml import Insert

from routecast.datasets.errors import MissingPackage, UsageError
from routecast.datasets.places import is_server

BUSY_SECONDS = 30.0
"""How long a process waits for another one's write."""


def connect(url: URL) -> Engine:
    """An engine for a database; the folder of a file is made when it does not exist.

    Raises:
        UsageError: the path is a folder, or its folder cannot be made.
        MissingPackage: the driver of PostgreSQL is not installed.
    """
    return _server(url) if is_server(url) else _file(Path(str(url.database)), url)


def _file(path: Path, url: URL) -> Engine:
    if path.is_dir():
        raise UsageError(f"{path} is a folder; a history is a file, for example {path / 'history.db'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {path.parent}: {error.strerror}") from error
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS}, hide_parameters=True)
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def _server(url: URL) -> Engine:
    # Without these a connection whose server is gone without a word would hang for a quarter of an hour.
    waits = {"connect_timeout": 10, "tcp_user_timeout": 30_000, "keepalives_idle": 30}
    arguments = {**waits, "application_name": "routecast"}
    chosen = {name: value for name, value in arguments.items() if name not in url.query}
    try:
        engine = create_engine(url, connect_args=chosen, pool_pre_ping=True, hide_parameters=True)
    except ImportError as error:
        raise MissingPackage("psycopg", "a history in PostgreSQL", "postgres") from error
    _servers.add(engine)
    return engine


_servers: WeakSet[Engine] = WeakSet()


def _leave_connections_to_parent() -> None:
    # Two processes that talk over one connection would read each other's answers.
    for engine in _servers:
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_leave_connections_to_parent)


def _configure(connection: Any, _record: object) -> None:
    # sqlite3 would start transactions by itself and late: one that reads first could then fail to write.
    connection.isolation_level = None


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that may write from its start, committed at the end."""
    with engine.execution_options(begin="BEGIN IMMEDIATE").begin() as connection:
        if engine.dialect.name == "postgresql":
            # For this transaction only, so that it is right behind a connection pooler too.
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(1000 * BUSY_SECONDS)}")
        yield connection


def insert_new(engine: Engine, table: Table) -> Insert:
    """A statement that stores the rows that the table does not hold yet, whose ``rowcount`` says how many."""
    if engine.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        statement: Insert = postgresql.insert(table).on_conflict_do_nothing()
    else:
        statement = sqlite.insert(table).on_conflict_do_nothing()
    return statement.execution_options(preserve_rowcount=True)


def use_write_ahead_log(engine: Engine) -> None:
    """Lets readers and a writer of a file work at once; the setting stays with the file."""
    connection = engine.raw_connection()
    try:
        for attempt in range(50):
            try:
                connection.cursor().execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError as error:
                # SQLite does not wait here when another process makes the same file at this moment.
                if attempt == 49 or "locked" not in str(error):
                    raise
                time.sleep(0.1)
            else:
                return
    finally:
        connection.close()
