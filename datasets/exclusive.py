"""One process at a time: a lock that a history's own database or folder holds, and drops when its holder dies."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from routecast.datasets.errors import RoutecastError


class Busy(RoutecastError):
    """Another process does the same at this moment: the exit status is that of ``EX_TEMPFAIL``, try again later."""

    exit_status = 75


@contextmanager
def exclusive(engine: Engine, path: Path | None, purpose: str) -> Iterator[None]:
    """Holds the lock of a purpose while the block runs.

    Args:
        engine: of the history.
        path: the history's file, None when it is on a server. The lock is then a file beside it, else an advisory lock
            of the server, which all hosts see; behind a pooler it needs session pooling.
        purpose: what is done, one word.

    Raises:
        Busy: another process holds it.
    """
    with _server_lock(engine, purpose) if path is None else _file_lock(path, purpose):
        yield


@contextmanager
def _file_lock(path: Path, purpose: str) -> Iterator[None]:
    # The file stays: a process that removed it could remove the lock that another has just taken.
    descriptor = os.open(path.with_name(f"{path.name}.{purpose}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _busy(purpose) from None
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _server_lock(engine: Engine, purpose: str) -> Iterator[None]:
    digest = hashlib.sha256(f"routecast {purpose}".encode()).digest()
    key = {"key": int.from_bytes(digest[:8], signed=True)}
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if not connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), key):
            raise _busy(purpose)
        try:
            yield
        finally:
            try:
                connection.execute(text("SELECT pg_advisory_unlock(:key)"), key)
            except DBAPIError:
                connection.invalidate()  # the server dropped the lock together with the connection


def _busy(purpose: str) -> Busy:
    return Busy(f"another {purpose} of this history is running: wait until it ends")
