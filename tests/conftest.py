"""Options of the test run: slow tests run when asked for. And a PostgreSQL server of its own for whoever needs one."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tests too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow: run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


@dataclass(frozen=True)
class PostgresServer:
    """A PostgreSQL server in a folder of its own, reached through a socket there.

    Attributes:
        programs: folder of ``initdb`` and ``pg_ctl``.
        folder: the data, the log and the socket.
        user: who runs it, since PostgreSQL refuses to be root.
    """

    programs: Path
    folder: Path
    user: str | None

    def start(self) -> None:
        owner = self.user or pwd.getpwuid(os.getuid()).pw_name
        secret = self.folder / "password"
        secret.write_text("secret")
        for path in (self.folder, secret):
            shutil.chown(path, owner)
        self._run(
            "initdb", "-U", "owner", "-A", "scram-sha-256", f"--pwfile={secret}", "-E", "UTF8", "--locale=C",
            "--no-sync", "-D", self.folder / "data",
        )  # fmt: skip
        # Nothing survives a power cut this way, and nothing here must; a killed server loses nothing.
        settings = {
            "unix_socket_directories": f"'{self.folder}'", "listen_addresses": "''", "max_connections": 50,
            "fsync": "off", "full_page_writes": "off", "shared_buffers": "64MB",
        }  # fmt: skip
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())
        self._run("pg_ctl", "start", "-w", "-D", self.folder / "data", "-l", self.folder / "log")

    def restart(self, mode: str = "fast") -> None:
        """Restarts it; ``immediate`` is as if it had crashed."""
        self._run("pg_ctl", "restart", "-w", "-m", mode, "-D", self.folder / "data", "-l", self.folder / "log")

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", self.folder / "data")

    def url(self, database: str, user: str = "owner", password: str = "secret") -> str:
        return f"postgresql://{user}:{password}@/{database}?host={self.folder}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Does something as the server's superuser and returns what the last statement selects."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            done = connection.execute(statement.encode())
            return done.fetchall() if done.description else []

    def _run(self, program: str, *arguments: object) -> None:
        # The server inherits a file and not a pipe, which would stay open as long as it runs.
        with tempfile.TemporaryFile() as said:
            done = subprocess.run(
                [self.programs / program, *map(str, arguments)],
                stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd="/", user=self.user,
                group=None if self.user is None else pwd.getpwnam(self.user).pw_gid,
                extra_groups=None if self.user is None else [],
            )  # fmt: skip
            said.seek(0)
            assert done.returncode == 0, said.read().decode()


def _programs() -> Path | None:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    return max((path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")), default=None)


def _other_user() -> str | None:
    """Somebody else to run the server, None when this is not root."""
    if os.getuid():
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running PostgreSQL server; without one the test is skipped."""
    programs = _programs()
    if programs is None:
        pytest.skip("no PostgreSQL server: initdb is neither in PATH nor in /usr/lib/postgresql/*/bin")
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'routecast[postgres]'")
    # Not pytest's folder, which only root may enter, and short, because a socket's path is at most 107 bytes long.
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        server = PostgresServer(programs, Path(folder), _other_user())
        server.start()
        yield server
        server.stop()


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """The URL of a database that is empty when the test begins, with the password in it."""
    if not postgres.execute("SELECT 1 FROM pg_database WHERE datname = 'history'"):
        postgres.execute("CREATE DATABASE history")
    postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'history'")
    # Much faster than a database for each test.
    postgres.execute(
        "DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC", "history"
    )
    return postgres.url("history")
