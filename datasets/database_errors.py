"""What the databases of a history say when something is wrong, in one line that a user can act on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, OperationalError

from routecast.datasets.database import BUSY_SECONDS
from routecast.datasets.errors import RoutecastError, UsageError

_LONGEST = 300

_LOCKED = "stayed locked for {busy:g} s; end the process that holds it"
_FULL = "the disk of the server is full; free some space there and run again"
_CONNECTIONS = "the server has no connection left; run fewer workers or raise its max_connections"
_DENIED = "permission denied ({text}); ask its owner for `routecast history grant ROLE`"
_REFUSED = (
    "the server refuses the password; put the right one into ~/.pgpass, PGPASSWORD or the URL in $ROUTECAST_HISTORY"
)

# By SQLSTATE, https://www.postgresql.org/docs/current/errcodes-appendix.html
_STATES: dict[str, tuple[type[RoutecastError], str]] = {
    "25006": (UsageError, "the server is read-only ({text}); give the URL of the primary"),
    "3F000": (UsageError, _DENIED),  # no schema that the role may use
    "42501": (UsageError, _DENIED),
    "42704": (UsageError, "{text}; make it with CREATE ROLE"),
    "53100": (RoutecastError, _FULL),
    "53300": (RoutecastError, _CONNECTIONS),
    "55P03": (RoutecastError, _LOCKED),
    "23514": (UsageError, "the database refuses a row over its size limits ({text})"),
    "P0001": (RoutecastError, "{text}"),
}

# A server that refuses a connection tells no SQLSTATE through libpq, only a text.
_REFUSALS: tuple[tuple[str, type[RoutecastError], str], ...] = (
    ("password authentication failed", UsageError, _REFUSED),
    ("no password supplied", UsageError, _REFUSED),
    ("permission denied for database", UsageError, _DENIED),
    ("no pg_hba.conf entry", UsageError, "the server accepts no such connection ({text}); ask who runs it"),
    ("authentication failed", UsageError, "the server refuses this user ({text}); ask who runs it"),
    ("too many clients", RoutecastError, _CONNECTIONS),
    ("too many connections", RoutecastError, _CONNECTIONS),
    ("connection slots", RoutecastError, _CONNECTIONS),
    ('database "', UsageError, "{text}; make it with createdb or correct the URL"),
    ('role "', UsageError, "{text}; make it with createuser or correct the URL"),
    ("", RoutecastError, "cannot reach the server ({text}); see that it runs and that the URL is right"),
)


# Errors after which the same transaction may go through: the server stops or starts, no connection is left,
# and two writers that waited for each other.
_PASSING = frozenset({"57P01", "57P02", "57P03", "53300", "40001", "40P01"})


@contextmanager
def errors_in(place: str) -> Iterator[None]:
    """Turns the errors of the database at ``place`` into routecast's."""
    try:
        yield
    except DBAPIError as error:
        text, state = _one_line(str(error.orig)), _state(error)
        if state == _FILE:
            raise _of_file(text, place) from error
        kind, said = _refusal(text) if state is None else _STATES.get(state, (RoutecastError, "{text}"))
        raise kind(f"the history {place}: {said.format(text=text, busy=BUSY_SECONDS)}") from error
    except sqlite3.Error as error:
        raise _of_file(str(error), place) from error


def passes(error: DBAPIError) -> bool:
    """Whether the same may work a little later: the server is away or busy, and nobody need do anything."""
    state = _state(error)
    if state is None:
        return _refusal(str(error.orig))[0] is not UsageError
    return error.connection_invalidated or state in _PASSING


_FILE, _DRIVER = "", "the driver's own"


def _state(error: DBAPIError) -> str | None:
    """SQLSTATE of an error, None when a server could not be asked, and ``_FILE`` for SQLite, which knows none."""
    state: str | None = getattr(error.orig, "sqlstate", _FILE)
    if state is None and not isinstance(error, OperationalError):
        return _DRIVER
    return state


def _refusal(text: str) -> tuple[type[RoutecastError], str]:
    return next((kind, said) for sign, kind, said in _REFUSALS if sign in text)


def _of_file(text: str, path: str) -> RoutecastError:
    if "not a database" in text or "malformed" in text:
        return UsageError(f"{path} is not an SQLite database, or is damaged ({text}); give another path")
    if "unable to open" in text or "readonly" in text:
        return UsageError(f"cannot write to the history {path} ({text}); check its permissions or give another path")
    if "locked" in text:
        return RoutecastError(f"the history {path} {_LOCKED.format(busy=BUSY_SECONDS)}")
    if "full" in text:
        return RoutecastError(f"cannot write to the history {path}: the disk is full; free some space and run again")
    return RoutecastError(f"the history {path} failed: {text}")


def _one_line(text: str) -> str:
    """The last thing said of the first line: libpq tells first how it connected, and then every address it tried."""
    line = text.strip().partition("\n")[0].rpartition("FATAL:")[2].strip()
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
