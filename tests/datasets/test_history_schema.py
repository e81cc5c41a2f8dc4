"""Tests of the tables of a history: how they are made, upgraded and protected."""

from __future__ import annotations

import multiprocessing
import sqlite3
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from typer.testing import CliRunner

from routecast.datasets import database, places, schema, sizes
from routecast.datasets.environment import Environment
from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.history import History
from routecast.datasets.measurement import LocalTime, Measurement, Status
from routecast.datasets.migrations import VERSION_TABLE
from routecast.datasets.records import Records
from routecast.datasets.route import Route
from routecast.datasets.tables import SCHEMA, metadata, route_digest
from routecast.tuner.cli import app

RELEASED = Path(__file__).parent / "data" / "history_schema_1.sql"
"""A dump of a file that routecast 0.1.0 wrote: three measurements, one graph, one environment."""

ANY = Measurement("f", Route({"k": "v"}), "e", Status.OK)


@pytest.fixture
def released(path: Path) -> Path:
    with sqlite3.connect(path) as raw:
        raw.executescript(RELEASED.read_text())
    raw.close()
    return path


# ---- making


def test_migrations_make_the_tables_that_the_code_uses(place: str) -> None:
    with History(place) as history, history._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() == str(SCHEMA)
        assert schema._version(connection, schema._table_names(connection)) == SCHEMA


def test_the_database_has_the_limits_that_the_code_checks() -> None:
    migration = import_module("routecast.datasets.migrations.versions.schema_2")
    assert migration.CONTENT_BYTES == sizes.CONTENT_BYTES
    assert migration.COLUMN_BYTES == {**sizes.COLUMN_BYTES, "route_digest": 32}


def _open(place: str, start: object) -> None:
    start.wait(60)  # type: ignore[attr-defined]
    with History(place) as history:
        history.add(replace(ANY, identity=f"{multiprocessing.current_process().name}"))


def test_several_processes_make_the_tables_at_once(place: str) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Barrier(4)
    processes = [context.Process(target=_open, args=(place, start)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    with History(place) as history:
        assert len(history) == 4


def test_tables_that_another_process_makes_meanwhile_are_no_foreign_ones(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = schema._table_names
    asked: list[list[str]] = []

    def late(connection: Connection) -> list[str]:
        """The names, and just after the first look another process makes the tables."""
        found = names(connection)
        if not asked:
            asked.append(found)
            connection.rollback()
            with History(place):
                pass
        return found

    monkeypatch.setattr(schema, "_table_names", late)
    with History(place) as history:
        assert (asked, len(history)) == ([[]], 0)


# ---- upgrading


def test_a_file_of_the_first_release_is_upgraded_when_it_is_opened(released: Path, records: Records) -> None:
    with History(released) as history:
        stored = list(history.measurements())
        assert [item.created[:10] for item in stored] == ["2026-01-01", "2026-01-02", "2026-01-03"]
        assert [item.ratio is None for item in stored] == [False, False, True]
        assert history.graph(stored[0].fingerprint).nodes[0].op == "Relu"
        environment = history.environment(stored[0].environment)
        assert environment == Environment("onnxruntime", "1.0", "some CPU", numbers={"cores": 2.0})
        known = history.known(stored[0].fingerprint, [environment.identity], [stored[1].route, Route({"k": "v"})])
        assert known == {stored[1].route}
        history.import_records(records)
        assert history.add_many(stored) == 0
        with history._engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
            assert compare_metadata(context, metadata) == []
    with sqlite3.connect(released) as raw, pytest.raises(sqlite3.IntegrityError, match="never changed"):
        raw.execute("DELETE FROM measurements")


def test_several_processes_upgrade_a_file_at_once(released: Path) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Barrier(4)
    processes = [context.Process(target=_open, args=(str(released), start)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    with History(released) as history:
        assert len(history) == 3 + 4


def test_the_first_release_refuses_an_upgraded_file_but_goes_on_in_one_it_has_open(released: Path) -> None:
    old = sqlite3.connect(released, isolation_level=None)
    old.execute("SELECT * FROM measurements").fetchall()
    History(released).close()
    columns = "identity, fingerprint, environment, run, family, model, status, route, created, ratio, content"
    content = old.execute("SELECT content FROM measurements WHERE number = 1").fetchone()
    values = ("new", "f", "e", "r", "cnn", "net", "ok", "k=v", "2026", None, *content)
    old.execute(f"INSERT INTO measurements ({columns}) VALUES ({','.join('?' * 11)}) ON CONFLICT DO NOTHING", values)
    assert old.execute("SELECT value FROM routecast WHERE key = 'schema'").fetchone() == ("2",)
    old.close()
    with History(released) as history:
        assert len(list(history.measurements())) == 4


def test_an_upgrade_that_fails_changes_nothing(released: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = "\n".join(sqlite3.connect(released).iterdump())

    def limit(connection: sqlite3.Connection, _record: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")

    connect = database.connect
    with monkeypatch.context() as patch:

        def connect_to_full_disk(url: object) -> object:
            engine = connect(url)  # type: ignore[arg-type]
            database.event.listen(engine, "connect", limit)
            return engine

        patch.setattr(database, "connect", connect_to_full_disk)
        with pytest.raises(RoutecastError, match="the disk is full"):
            History(released)
    assert "\n".join(sqlite3.connect(released).iterdump()) == before
    with History(released) as history:
        assert len(history) == 3


@pytest.fixture
def old_server(postgres_url: str) -> str:
    """A database on a server with the tables of schema 1 and a measurement."""
    engine = database.connect(places.locate(postgres_url))
    schema.upgrade(engine, 1)
    columns = "identity, fingerprint, environment, run, family, model, status, route, created, content"
    with engine.begin() as connection:
        connection.execute(
            text(f"INSERT INTO measurements ({columns}) VALUES ('i', 'f', 'e', '', '', '', 'ok', 'k=v', '', '{{}}')")
        )
    engine.dispose()
    return postgres_url


@pytest.mark.postgres
def test_a_server_is_upgraded_only_by_the_command(old_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="has schema 1, this routecast needs 2: when every worker") as caught:
        History(old_server)
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("ROUTECAST_HISTORY", old_server)
    done = CliRunner().invoke(app, ["history", "migrate"])
    assert "has schema 2 now, it had 1" in done.output
    assert "secret" not in done.output
    assert "has schema 2 already" in CliRunner().invoke(app, ["history", "migrate"]).output
    with History(old_server) as history:
        assert history.known("f", ["e"], [ANY.route]) == {ANY.route}
        assert history.add(ANY) is None


@pytest.mark.postgres
def test_a_newer_server_is_refused(postgres_url: str) -> None:
    with History(postgres_url) as history, history._engine.begin() as connection:
        connection.execute(text("UPDATE routecast SET value = '3' WHERE key = 'schema'"))
    for function in (History, schema.migrate):
        with pytest.raises(UsageError, match="has schema 3, this routecast knows up to 2: upgrade routecast"):
            function(postgres_url)


@pytest.mark.postgres
def test_a_server_database_of_something_else_is_left_alone(postgres_url: str) -> None:
    engine = database.connect(places.locate(postgres_url))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE holidays (day text)"))
    with pytest.raises(UsageError, match=r"is a PostgreSQL database with other tables \(holidays...\)"):
        History(postgres_url)
    with engine.connect() as connection:
        assert schema._table_names(connection) == ["holidays"]
    engine.dispose()


# ---- protecting


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE measurements SET content = '{}'",
        "DELETE FROM measurements",
        "UPDATE graphs SET content = '{}'",
        "DELETE FROM environments",
        "INSERT INTO environments VALUES ('e', 'x') ON CONFLICT (identity) DO UPDATE SET content = 'x'",
    ],
)
def test_the_database_lets_nobody_change_a_row(filled: History, records: Records, statement: str) -> None:
    (identity,) = records.environments
    with pytest.raises(DBAPIError, match="are never changed, only added"), filled._engine.begin() as connection:
        connection.execute(text(statement.replace("'e'", f"'{identity}'")))
    assert filled.records() == records


@pytest.mark.postgres
def test_a_server_does_not_truncate(postgres_url: str) -> None:
    with History(postgres_url) as history:
        history.add(ANY)
        with pytest.raises(DBAPIError, match="are never changed"), history._engine.begin() as connection:
            connection.execute(text("TRUNCATE measurements"))
        assert len(history) == 1


def test_what_is_too_large_is_refused_with_one_line(filled: History, records: Records) -> None:
    layers = tuple(LocalTime("layer", "Relu", 0.1) for _ in range(sizes.LAYERS + 1))
    for large, message in (
        (replace(ANY, message="x" * 10_001), "a message of 10,001 characters, a history takes 10,000"),
        (replace(ANY, local_profile=layers), "a local profile of 50,001 layers, a history takes 50,000"),
        (replace(ANY, accuracy={"x" * (9 << 20): 1.0}), "content of a row of measurements has 9,437"),
        (replace(ANY, family="é" * 129), "family of a row of measurements has 258 bytes, a history takes 256"),
        (replace(ANY, route=Route({"k": "x" * 70_000})), "route of a row of measurements has 70,002 bytes"),
        (replace(ANY, model="\udcff.onnx"), "model of a row of measurements holds characters that are no text"),
        (replace(ANY, model="a\0b"), "holds characters that are no text"),
    ):
        with pytest.raises(UsageError, match=message) as caught:
            filled.add_many([replace(ANY, identity="fits"), large])
        assert len(str(caught.value)) < 300
    assert filled.records() == records


def test_the_database_refuses_what_is_too_large_too(
    filled: History, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "check_row", lambda table, row: None)
    with pytest.raises(RoutecastError, match="size"):
        filled.add(replace(ANY, accuracy={"x" * (9 << 20): 1.0}))
    with pytest.raises(RoutecastError, match="size"):
        filled.add(replace(ANY, family="x" * 257))
    with pytest.raises(RoutecastError, match="size"):
        filled.add_environment(Environment("b", "1", "x" * 70_000))
    assert filled.records() == records


# ---- what is known


def test_known_routes_of_a_graph_in_environments(filled: History, records: Records) -> None:
    (fingerprint,), (environment,) = records.graphs, records.environments
    routes = [item.route for item in records.measurements]
    new = Route({"session.threads": "99"})
    assert filled.known(fingerprint, [environment], [*routes[:2], new]) == set(routes[:2])
    assert filled.known(fingerprint, [environment, "other"], routes) == set(routes)
    assert filled.known(fingerprint, ["other"], routes) == set()
    assert filled.known(fingerprint, [], routes) == set()
    assert filled.known("other", [environment], routes) == set()
    assert filled.environments() == records.environments


def test_a_long_route_is_stored_and_known(filled: History) -> None:
    digits = "".join(route_digest(str(number)) for number in range(1000))  # 32 kB that do not compress
    long = replace(ANY, route=Route({"k": digits}))
    filled.add(long)
    assert filled.known("f", ["e"], [long.route, ANY.route]) == {long.route}
    assert list(filled.measurements(fingerprint="f")) == [long]


def _plan(history: History, explain: str) -> str:
    query = "SELECT route_digest FROM measurements WHERE fingerprint = 'f' AND environment IN ('e', 'g')"
    with history._engine.connect() as connection:
        return " ".join(str(row) for row in connection.execute(text(f"{explain} {query}")))


def test_an_index_alone_answers_what_is_known_in_a_file(path: Path) -> None:
    with History(path) as history:
        assert "USING COVERING INDEX measurements_known" in _plan(history, "EXPLAIN QUERY PLAN")


@pytest.mark.postgres
def test_an_index_alone_answers_what_is_known_on_a_server(postgres_url: str) -> None:
    with History(postgres_url) as history:
        history.add_many(
            replace(ANY, fingerprint=f"f{number % 50}", route=Route({"k": str(number)}), identity=str(number))
            for number in range(2000)
        )
        with history._engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.execute(text("VACUUM ANALYZE measurements"))
        plan = _plan(history, "EXPLAIN (ANALYZE)")
        assert "Index Only Scan using measurements_known" in plan
        assert "Heap Fetches: 0" in plan
