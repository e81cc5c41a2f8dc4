"""Where a history is: a file or a PostgreSQL database, and how that is said without its password."""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from routecast.datasets.errors import UsageError

DRIVER = "postgresql+psycopg"
_EXAMPLE = "postgresql://user@host:5432/database"
# What a URL's query may say about where the server is; the rest may hold a secret.
_WHERE = ("host", "port", "service")


def locate(url_or_path: str | Path | None) -> URL:
    """The database that a path, a URL or the environment names.

    Raises:
        UsageError: the URL is of another kind of database, or malformed.
    """
    if url_or_path is None:
        url_or_path = os.environ.get("ROUTECAST_HISTORY") or "~/.local/share/routecast/history.db"
    text = str(url_or_path)
    if isinstance(url_or_path, str) and "://" in text:
        kind = text.partition(":")[0]
        if kind in ("postgresql", DRIVER):
            return _server(text)
        scheme, _, path = text.partition(":///")
        if scheme != "sqlite" or not path:
            raise UsageError(f"a history is a path, an sqlite:///path or a {_EXAMPLE} URL, got a URL of {kind}")
        text = path
    return URL.create("sqlite", database=str(Path(text).expanduser()))


def _server(text: str) -> URL:
    try:
        return make_url(text).set(drivername=DRIVER)
    except (ArgumentError, ValueError):
        # The cause is left out, because it may repeat the URL and so the password.
        raise UsageError(f"the URL of the history cannot be read; write {_EXAMPLE}, with %40 for @ in a name") from None


def is_server(url: URL) -> bool:
    """Whether it is a database on a server, which others use too."""
    return url.drivername == DRIVER


def exists(url: URL) -> bool:
    """Whether there may be a history: a file that is there, or any server."""
    return is_server(url) or Path(str(url.database)).exists()


def shown(url: URL) -> str:
    """The database for people: a file's path, or a URL without its password."""
    if not is_server(url):
        return str(url.database)
    query = {name: value for name, value in url.query.items() if name in _WHERE}
    safe = URL.create("postgresql", url.username, None, url.host, url.port, url.database, query)
    return safe.render_as_string()


def holds_password(source: str) -> bool:
    """Whether a URL holds a password, as its user's or in its query."""
    if "://" not in source or source.startswith("sqlite:"):
        return False
    try:
        url = make_url(source)
    except (ArgumentError, ValueError):
        return "@" in source or "password" in source
    return url.password is not None or any("password" in name for name in url.query)
