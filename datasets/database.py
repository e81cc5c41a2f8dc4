"""The tables of a history, and SQLite's ways of saying that something is wrong."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    inspect,
    select,
)
from sqlalchemy.exc import DBAPIError

from routecast.datasets.errors import RoutecastError, UsageError

SCHEMA = 1
"""Version of the tables; raised with every change that an older routecast would misread."""

BUSY_SECONDS = 30
"""How long a process waits for another one's write."""

metadata = MetaData()

about = Table("routecast", metadata, Column("key", String, primary_key=True), Column("value", String, nullable=False))
graphs = Table(
    "graphs",
    metadata,
    Column("fingerprint", String, primary_key=True),
    Column("content", Text, nullable=False),
)
environments = Table(
    "environments",
    metadata,
    Column("identity", String, primary_key=True),
    Column("content", Text, nullable=False),
)
measurements = Table(
    "measurements",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("identity", String, nullable=False, unique=True),
    Column("fingerprint", String, nullable=False),
    Column("environment", String, nullable=False, index=True),
    Column("run", String, nullable=False, index=True),
    Column("family", String, nullable=False, index=True),
    Column("model", String, nullable=False),
    Column("status", String, nullable=False),
    Column("route", Text, nullable=False),
    Column("created", String, nullable=False),
    Column("ratio", Float),
    Column("content", Text, nullable=False),
    Index("measurements_known", "fingerprint", "environment", "route"),
)


def locate(url_or_path: str | Path | None) -> Path:
    """The file that a path, an ``sqlite:///`` URL or the environment names.

    Raises:
        UsageError: the URL is of another database.
    """
    if url_or_path is None:
        url_or_path = os.environ.get("ROUTECAST_HISTORY") or "~/.local/share/routecast/history.db"
    text = str(url_or_path)
    if isinstance(url_or_path, str) and "://" in text:
        scheme, _, path = text.partition(":///")
        if scheme != "sqlite" or not path:
            kind = text.partition(":")[0]
            raise UsageError(f"a history is a path or an sqlite:///path URL, got a URL of {kind}")
        text = path
    return Path(text).expanduser()


def connect(path: Path) -> Engine:
    """An engine for a file, whose folder is made when it does not exist.

    Raises:
        UsageError: the path is a folder, or its folder cannot be made.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder; a history is a file, for example {path / 'history.db'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {path.parent}: {error.strerror}") from error
    engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"timeout": BUSY_SECONDS})
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: Any, _record: object) -> None:
    # sqlite3 would start transactions by itself and late: one that reads first could then fail to write.
    connection.isolation_level = None


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that may write from its start, committed at the end."""
    with engine.execution_options(begin="BEGIN IMMEDIATE").begin() as connection:
        yield connection


def prepare(engine: Engine, path: Path) -> None:
    """Makes the tables when there are none, and checks the version of those that are there.

    Raises:
        UsageError: the file is a database of something else, or of a newer routecast.
    """
    if not _version(engine, path):
        _use_write_ahead_log(engine)
        with writing(engine) as connection:
            metadata.create_all(connection)
            if not connection.scalar(select(about.c.value).where(about.c.key == "schema")):
                connection.execute(about.insert(), {"key": "schema", "value": str(SCHEMA)})
    version = _version(engine, path)
    if version > SCHEMA:
        raise UsageError(f"{path} has schema {version}, this routecast knows up to {SCHEMA}: upgrade routecast")


def _version(engine: Engine, path: Path) -> int:
    """The version of the tables, 0 when there are none."""
    with engine.connect() as connection:
        names = inspect(connection).get_table_names()
        if not names:
            return 0
        if about.name not in names:
            raise UsageError(f"{path} is an SQLite database, but not a routecast history; give another path")
        version = connection.scalar(select(about.c.value).where(about.c.key == "schema"))
    return int(version) if version else 0


def _use_write_ahead_log(engine: Engine) -> None:
    """Lets readers and a writer work at once; the setting stays with the file."""
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


@contextmanager
def errors_in(path: Path) -> Iterator[None]:
    """Turns the database's errors into routecast's."""
    try:
        yield
    except DBAPIError as error:
        raise _translate(str(error.orig), path) from error
    except sqlite3.Error as error:
        raise _translate(str(error), path) from error


def _translate(text: str, path: Path) -> RoutecastError:
    if "not a database" in text or "malformed" in text:
        return UsageError(f"{path} is not an SQLite database, or is damaged ({text}); give another path")
    if "unable to open" in text or "readonly" in text:
        return UsageError(f"cannot write to the history {path} ({text}); check its permissions or give another path")
    if "locked" in text:
        return RoutecastError(f"the history {path} stayed locked for {BUSY_SECONDS} s; end the process that holds it")
    if "full" in text:
        return RoutecastError(f"cannot write to the history {path}: the disk is full; free some space and run again")
    return RoutecastError(f"the history {path} failed: {text}")
