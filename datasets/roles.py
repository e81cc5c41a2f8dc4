"""What a worker of a fleet may do to its history in PostgreSQL: read and add, nothing else."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine, inspect, text

from routecast.datasets import database
from routecast.datasets.database_errors import errors_in
from routecast.datasets.errors import UsageError
from routecast.datasets.migrations import VERSION_TABLE
from routecast.datasets.places import is_server, locate, shown
from routecast.datasets.schema import prepare
from routecast.datasets.tables import STORED, about, measurements

_OWNED = (
    "SELECT pg_has_role(tableowner, 'USAGE') FROM pg_tables WHERE tablename = :table AND schemaname = current_schema()"
)


def grant(role: str, url_or_path: str | Path | None = None) -> str:
    """Lets a role of PostgreSQL read a history and add to it, and takes every other right on it away.

    Args:
        role: name of a role that exists.
        url_or_path: as for ``History``; the user in it owns the tables.

    Returns:
        The database, without its password.

    Raises:
        UsageError: the history is a file, the role does not exist, or the user does not own the tables.
        RoutecastError: the database failed.
    """
    url = locate(url_or_path)
    place = shown(url)
    if not is_server(url):
        raise UsageError(f"{place} is a file, which has no roles; who may use it is up to its permissions (chmod)")
    engine = database.connect(url)
    try:
        with errors_in(place):
            prepare(engine, place)
            with database.writing(engine) as connection:
                # PostgreSQL only warns when somebody grants what is not theirs.
                if not connection.scalar(text(_OWNED), {"table": measurements.name}):
                    raise UsageError(f"the history {place} is not this user's; ask its owner to grant rights on it")
                for statement in _statements(engine, role):
                    connection.exec_driver_sql(statement)
    finally:
        engine.dispose()
    return place


def _statements(engine: Engine, role: str) -> list[str]:
    # Names cannot be bound parameters: the dialect quotes them.
    quote = engine.dialect.identifier_preparer.quote_identifier
    stored = ", ".join(quote(table.name) for table in STORED)
    versions = f"{quote(about.name)}, {quote(VERSION_TABLE)}"
    schema = quote(inspect(engine).default_schema_name or "public")
    who = quote(role)
    return [
        f"REVOKE ALL ON {stored}, {versions} FROM {who}",
        f"GRANT USAGE ON SCHEMA {schema} TO {who}",
        f"GRANT SELECT ON {versions} TO {who}",
        f"GRANT SELECT, INSERT ON {stored} TO {who}",
        f"GRANT USAGE ON SEQUENCE {quote(f'{measurements.name}_number_seq')} TO {who}",
    ]
