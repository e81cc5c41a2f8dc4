"""Tests of what only a history on a PostgreSQL server has: errors, passwords, roles, a server that goes away."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from routecast.datasets import database, database_errors, places
from routecast.datasets import history as history_module
from routecast.datasets.errors import MissingPackage, RoutecastError, UsageError
from routecast.datasets.history import History
from routecast.datasets.measurement import LocalTime, Measurement, Status
from routecast.datasets.records import Records
from routecast.datasets.roles import grant
from routecast.datasets.route import Route
from routecast.datasets.tables import environments
from routecast.tuner import doctor
from routecast.tuner.cli import app
from routecast.tuner.sources import without_password

if TYPE_CHECKING:
    from tests.conftest import PostgresServer

postgres_test = pytest.mark.postgres

ANY = Measurement("f", Route({"k": "v"}), "e", Status.OK)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Does not wait for servers that do not come."""
    for name in ("PATIENCE_SECONDS", "OPENING_SECONDS"):
        monkeypatch.setattr(history_module, name, 0.5)


def _fails(message: str, act: Callable[[], object], kind: type[RoutecastError] = UsageError) -> None:
    """Sees that something fails with one line that holds no password, nor does what caused it."""
    with pytest.raises(kind, match=message) as caught:
        act()
    assert "\n" not in str(caught.value)
    assert type(caught.value) is kind
    error: BaseException | None = caught.value
    while error is not None:
        assert "secret" not in f"{error!r} {error}"
        error = error.__cause__ or error.__context__


# ---- where a history is


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://me:secret@host:5433/db", "postgresql://me@host:5433/db"),
        ("postgresql+psycopg://me:secret@host/db", "postgresql://me@host/db"),
        ("postgresql://me:se@cr/et?x@host/db", "postgresql://me@cr/et"),
        ("postgresql://me@/db?host=/tmp/s&port=1&password=secret", "postgresql://me@/db?host=%2Ftmp%2Fs&port=1"),
        ("postgresql:///db?service=fleet&sslpassword=secret", "postgresql:///db?service=fleet"),
        ("sqlite:///a:b@c.db", "a:b@c.db"),
        ("a:b@c.db", "a:b@c.db"),
    ],
)
def test_a_place_is_shown_without_its_password(given: str, shown: str) -> None:
    if "se@cr" not in given:
        assert places.shown(places.locate(given)) == shown
    assert "secret" not in without_password(given)


@pytest.mark.parametrize(
    "url", ["postgresql://me:secret@host:port/db", "postgresql://me:secret@[::1/db", "postgresql://me:sec@ret@:x/"]
)
def test_a_malformed_url_is_refused_without_repeating_it(url: str) -> None:
    _fails("the URL of the history cannot be read; write postgresql://user@host:5432/database", lambda: History(url))


@pytest.mark.parametrize(
    ("source", "holds"),
    [
        ("postgresql://me:secret@host/db", True),
        ("postgresql://host/db?user=me&password=secret", True),
        ("postgresql://me:secret@host:port/db", True),
        ("postgresql://me@host/db", False),
        ("sqlite:///me:secret@host", False),
        ("folder/me:secret@host", False),
    ],
)
def test_a_password_is_found_in_a_url(source: str, holds: bool) -> None:
    assert places.holds_password(source) is holds


@pytest.mark.parametrize(
    "command",
    [
        ("history", "stats", "--history"),
        ("history", "import"),
        ("history", "migrate", "--history"),
        ("collect", "--history"),
        ("tune", "x.onnx", "--history"),
        ("train",),
        ("compare",),
        ("doctor", "--history"),
    ],
)
def test_no_command_takes_a_password(command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*command, "postgresql://me:secret@host/db"])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: a password on the command line can be read by every user of this machine")
    assert "secret" not in done.output


def test_without_the_driver_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    _fails(
        r"needs the package psycopg, which is not installed: pip install 'routecast\[postgres\]'",
        lambda: History("postgresql://me:secret@host/db"),
        MissingPackage,
    )


# ---- what can be wrong with a server


def test_a_server_out_of_reach(impatient: None) -> None:
    _fails(
        "cannot reach the server .*127.0.0.1", lambda: History("postgresql://me:secret@127.0.0.1:1/x"), RoutecastError
    )
    _fails("cannot reach the server", lambda: History("postgresql:///x?host=/nowhere&password=secret"), RoutecastError)


@postgres_test
def test_what_a_server_refuses(
    postgres: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    for name in ("PGPASSWORD", "PGPASSFILE"):
        monkeypatch.delenv(name, raising=False)
    wrong = postgres.url("history", password="secret2")
    _fails("postgresql://owner@/history.*: the server refuses the password; put the right", lambda: History(wrong))
    none = postgres_url.replace(":secret", "")
    _fails("the server refuses the password; put the right one into ~/.pgpass", lambda: History(none))
    _fails('database "nope" does not exist; make it with createdb', lambda: History(postgres.url("nope")))
    postgres.execute("DROP ROLE IF EXISTS few; CREATE ROLE few LOGIN PASSWORD 'secret' CONNECTION LIMIT 0")
    few = postgres.url("history", "few")
    _fails("the server has no connection left; run fewer workers", lambda: History(few), RoutecastError)
    postgres.execute("DROP ROLE few")


@postgres_test
def test_a_password_comes_from_the_environment_or_a_file(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_url.replace(":secret", "")
    monkeypatch.delenv("PGPASSFILE", raising=False)
    monkeypatch.setenv("PGPASSWORD", "secret")
    with History(url) as history:
        history.add(ANY)
    monkeypatch.delenv("PGPASSWORD")
    secrets = tmp_path / "pgpass"
    secrets.write_text("*:*:history:owner:secret\n")
    secrets.chmod(0o600)
    with History(f"{url}&passfile={secrets}") as history:
        assert len(history) == 1
        assert history.place == url.replace("/tmp/", "%2Ftmp%2F")
    monkeypatch.setenv("PGPASSFILE", str(secrets))
    done = CliRunner().invoke(app, ["history", "stats", "--json", "--history", url])
    assert json.loads(done.output)["measurements"] == 1
    assert json.loads(done.output)["bytes"] > 8192


@postgres_test
def test_commands_never_say_the_password(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTECAST_HISTORY", postgres_url)
    with History() as history:
        history.add(ANY)
    runner = CliRunner()
    for command in (["history", "stats"], ["history", "stats", "--json"], ["history", "migrate"]):
        output = runner.invoke(app, ["--debug", *command]).output
        assert "postgresql://owner@/history" in output.replace("\n", "")
        assert "secret" not in output
    assert doctor._history(None).detail.startswith("1 measurements in postgresql://owner@/history")
    assert "1 measurements" in runner.invoke(app, ["history", "export", str(tmp_path / "out")]).output


@postgres_test
def test_a_row_locked_by_another(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.2)
    with History(postgres_url) as history, History(postgres_url) as other:
        with other._engine.connect() as connection:
            row = {"identity": "i", "content": "{}"}
            connection.execute(text("INSERT INTO environments VALUES (:identity, :content)"), row)
            insert = database.insert_new(history._engine, environments)

            def add() -> None:
                with database_errors.errors_in(history.place), database.writing(history._engine) as writer:
                    writer.execute(insert, [row])

            _fails("stayed locked for .* s; end the process that holds it", add, RoutecastError)
            connection.commit()
        add()


@postgres_test
def test_a_full_disk_on_the_server(postgres_url: str) -> None:
    with History(postgres_url) as history:
        history.add(ANY)
        with history._engine.begin() as connection:
            # What the server says when it cannot extend a table, without filling the disk of this machine.
            connection.execute(
                text(
                    "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION"
                    " 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$"
                )
            )
            connection.execute(
                text("CREATE TRIGGER t BEFORE INSERT ON measurements FOR EACH ROW EXECUTE FUNCTION full_disk()")
            )
        act = lambda: history.add(replace(ANY, identity="new"))  # noqa: E731
        _fails("the disk of the server is full; free some space there and run again", act, RoutecastError)
        assert list(history.measurements()) == [ANY]


# ---- roles


@pytest.fixture
def worker(postgres: PostgresServer, postgres_url: str) -> str:
    """The URL of a role that may do nothing yet."""
    # A role with a name that needs quotes.
    postgres.execute(
        """DO $$ BEGIN IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'wo"rk :e%r') THEN
        DROP OWNED BY "wo""rk :e%r"; DROP ROLE "wo""rk :e%r"; END IF; END $$""",
        "history",
    )
    postgres.execute('CREATE ROLE "wo""rk :e%r" LOGIN PASSWORD \'secret\'')
    return postgres.url("history", "wo%22rk%20%3Ae%25r")


@postgres_test
def test_a_worker_may_read_and_add_and_nothing_else(
    postgres: PostgresServer, postgres_url: str, worker: str, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    with History(postgres_url) as history:
        history.add(ANY)
    for right in ("REVOKE USAGE ON SCHEMA public FROM PUBLIC", "GRANT USAGE ON SCHEMA public TO PUBLIC"):
        postgres.execute(right, "history")
        _fails(r"permission denied \(.*\); ask its owner for `routecast history grant ROLE`", lambda: History(worker))
    monkeypatch.setenv("ROUTECAST_HISTORY", postgres_url)
    for _ in range(2):  # granting again changes nothing
        done = CliRunner().invoke(app, ["history", "grant", 'wo"rk :e%r'])
        assert done.output.startswith('wo"rk :e%r may read postgresql://owner@/history')
    with History(worker) as history:
        assert history.import_records(records) == len(records)
        assert history.add_many([ANY]) == 0
        assert next(history.measurements()) == ANY
        assert history.known("f", ["e"], [ANY.route]) == {ANY.route}
        assert history.stats().measurements == 7
        for statement in (
            "UPDATE measurements SET content = '{}'",
            "DELETE FROM measurements",
            "TRUNCATE graphs",
            "UPDATE routecast SET value = '1'",
            "ALTER TABLE measurements DISABLE TRIGGER ALL",
            "DROP TABLE environments",
            "CREATE TABLE mine (x int)",
        ):

            def act(statement: str = statement) -> None:
                with database_errors.errors_in(history.place), history._engine.begin() as connection:
                    connection.execute(text(statement))

            _fails(r"permission denied \(.*\); ask its owner", act)
        _fails("is not this user's; ask its owner", lambda: grant("owner", worker))


@postgres_test
def test_who_cannot_be_granted_anything(postgres_url: str, path: Path) -> None:
    _fails('role "nobody" does not exist; make it with CREATE ROLE', lambda: grant("nobody", postgres_url))
    _fails("is a file, which has no roles", lambda: grant("me", path))
    assert not path.exists()


# ---- a server that goes away


@postgres_test
def test_a_restart_between_calls_is_not_noticed(postgres: PostgresServer, postgres_url: str) -> None:
    with History(postgres_url) as history:
        history.add(ANY)
        for mode in ("fast", "immediate"):
            postgres.restart(mode)
            history.add(replace(ANY, identity=mode))
            assert history.environments() == {}
        assert len(history) == 3


@postgres_test
def test_reading_goes_on_after_a_restart(postgres: PostgresServer, postgres_url: str) -> None:
    with History(postgres_url) as history:
        added = [replace(ANY, identity=str(number), message="x" * 4000) for number in range(3000)]
        assert history.add_many(added) == len(added)
        reading = history.measurements()
        read = [next(reading) for _ in range(300)]
        postgres.restart("immediate")
        read += reading
        assert read == added


@postgres_test
def test_a_server_that_stays_away_is_given_up(postgres: PostgresServer, postgres_url: str, impatient: None) -> None:
    with History(postgres_url) as history:
        history.add(ANY)
        reading = history.measurements()
        postgres.stop()
        try:
            new = replace(ANY, identity="new")
            _fails("cannot reach the server", lambda: history.add(new), RoutecastError)
            _fails("cannot reach the server", lambda: next(reading), RoutecastError)
        finally:
            postgres.restart()
        history.add(new)
        assert list(history.measurements()) == [ANY, new]


@postgres_test
def test_writers_that_wait_for_each_other_both_succeed(postgres_url: str) -> None:
    """Two batches with the same measurements in opposite order deadlock, and PostgreSQL ends one of them."""
    batch = [replace(ANY, identity=str(number)) for number in range(1000)]
    failed: list[BaseException] = []

    def write(part: list[Measurement]) -> None:
        try:
            with History(postgres_url) as history:
                start.wait()
                history.add_many(part)
        except BaseException as error:
            failed.append(error)

    History(postgres_url).close()
    start = threading.Barrier(2)
    threads = [threading.Thread(target=write, args=(part,)) for part in (batch, batch[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    with History(postgres_url) as history:
        assert {item.identity for item in history.measurements()} == {item.identity for item in batch}
        assert len(history) == len(batch)


def _use(history: History, number: int) -> None:
    for step in range(20):
        history.add(replace(ANY, identity=f"{number}.{step}"))


@postgres_test
def test_a_history_may_be_used_on_both_sides_of_a_fork(postgres_url: str) -> None:
    with History(postgres_url) as history:
        history.add(ANY)
        before = history._read(lambda connection: connection.scalar(text("SELECT pg_backend_pid()")))
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=_use, args=(history, number)) for number in (1, 2)]
        for child in children:
            child.start()
        _use(history, 0)
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0, 0]
        assert len(history) == 61
        assert history._read(lambda connection: connection.scalar(text("SELECT pg_backend_pid()"))) == before


READER = """
import resource, sys
from routecast.datasets import history
history.STREAM = 16
with history.History(sys.argv[1]) as history:
    reading = history.measurements()
    next(reading)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = 1 + sum(1 for _ in reading)
    print(count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@postgres_test
def test_reading_takes_the_memory_of_some_rows_only(postgres_url: str) -> None:
    profile = tuple(LocalTime(os.urandom(60).hex(), "Conv", 0.1) for _ in range(150))  # about 25 kB
    with History(postgres_url) as history:
        history.add_many(replace(ANY, identity=str(number), local_profile=profile) for number in range(1000))
    done = subprocess.run([sys.executable, "-c", READER, postgres_url], capture_output=True, text=True, check=True)
    count, grown = done.stdout.split()
    assert int(count) == 1000
    assert float(grown) < 10  # MB, of 25 MB
