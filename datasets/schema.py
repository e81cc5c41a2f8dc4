"""Makes the tables of a history and brings them up to date.

A file is upgraded by whoever opens it: it belongs to one machine. A database on a server is not, because every worker
of a fleet writes to it: the first one that has a new routecast would lock out all others. There somebody runs
``routecast history migrate`` when all are upgraded. Tables that are not there yet are made in both.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, func, inspect, select

from routecast.datasets import database
from routecast.datasets.database_errors import errors_in
from routecast.datasets.errors import UsageError
from routecast.datasets.places import locate, shown
from routecast.datasets.tables import SCHEMA, about

_FIRST = 1
"""The version that routecast 0.1.0 made, before Alembic kept it."""

_LOCK = 0x726F757465
"""Key of PostgreSQL's advisory lock on making and upgrading tables."""

# Alembic keeps what it works on in its modules.
_alone = threading.Lock()


@dataclass(frozen=True)
class Migration:
    """What ``migrate`` did.

    Attributes:
        place: the database, without its password.
        before: version of the tables that were there, 0 when there were none.
        after: version of the tables now.
    """

    place: str
    before: int
    after: int


def migrate(url_or_path: str | Path | None = None) -> Migration:
    """Makes the tables of a history or upgrades them, on a server too. Older routecasts cannot use them any more.

    Args:
        url_or_path: as for ``History``.

    Raises:
        UsageError: the database cannot be used, is no history, or was written by a newer routecast.
        RoutecastError: the database failed.
    """
    url = locate(url_or_path)
    place = shown(url)
    engine = database.connect(url)
    try:
        with errors_in(place):
            before = _checked_version(engine, place)
            if before < SCHEMA:
                upgrade(engine)
            return Migration(place, before, SCHEMA)
    finally:
        engine.dispose()


def prepare(engine: Engine, place: str) -> None:
    """Makes the tables when there are none, and sees that those that are there can be used.

    Raises:
        UsageError: the database holds something else, is of a newer routecast, or must be upgraded first.
    """
    version = _checked_version(engine, place)
    if version == SCHEMA:
        return
    if version and engine.dialect.name == "postgresql":
        raise UsageError(
            f"{place} has schema {version}, this routecast needs {SCHEMA}: when every worker has this routecast, "
            "run `routecast history migrate`"
        )
    upgrade(engine)


def upgrade(engine: Engine, revision: int = SCHEMA) -> None:
    """Brings the tables to a version in one transaction, one process at a time."""
    if engine.dialect.name == "sqlite":
        database.use_write_ahead_log(engine)
    with _alone, database.writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        version = _version(connection, _table_names(connection))
        if version < revision:  # another process may have done it while this one waited
            _run_alembic(connection, version, str(revision))


def _run_alembic(connection: Connection, version: int, revision: str) -> None:
    from alembic import command
    from alembic.config import Config

    from routecast.datasets.migrations import VERSION_TABLE

    folder = Path(__file__).parent / "migrations"
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    if version == _FIRST and VERSION_TABLE not in _table_names(connection):
        command.stamp(config, str(_FIRST))
    command.upgrade(config, revision)


def _checked_version(engine: Engine, place: str) -> int:
    with engine.connect() as connection:
        names = _table_names(connection)  # asked for once: another process may be making them
        version = _version(connection, names)
        if version > SCHEMA:
            raise UsageError(f"{place} has schema {version}, this routecast knows up to {SCHEMA}: upgrade routecast")
        if not version and names:
            kind = "an SQLite" if engine.dialect.name == "sqlite" else "a PostgreSQL"
            raise UsageError(
                f"{place} is {kind} database with other tables ({names[0]}...), but not a routecast history; "
                "give another one"
            )
    return version


def _version(connection: Connection, names: Sequence[str]) -> int:
    """The version of the tables of these names, 0 when the history's are not among them."""
    if about.name not in names:
        return 0
    version: Any = connection.scalar(select(about.c.value).where(about.c.key == "schema"))
    return int(version or 0)


def _table_names(connection: Connection) -> list[str]:
    return sorted(inspect(connection).get_table_names())
