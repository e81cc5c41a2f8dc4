"""Tests of the history."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event

from routecast.datasets import database
from routecast.datasets.environment import Environment
from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.history import History
from routecast.datasets.measurement import Measurement, Status
from routecast.datasets.records import Records
from routecast.datasets.route import Route


@pytest.fixture
def filled_file(path: Path, records: Records) -> History:
    with History(path) as history:
        history.import_records(records)
    return history


def test_what_is_added_can_be_read_in_order(place: str, records: Records) -> None:
    (graph,), (environment,) = records.graphs.values(), records.environments.values()
    with History(place) as history:
        history.add_graph(graph)
        history.add_environment(environment)
        for measurement in records.measurements:
            history.add(measurement)
        assert list(history.measurements()) == records.measurements
    with History(place) as history:
        assert history.graph(graph.fingerprint) == graph
        assert history.environment(environment.identity) == environment
        assert history.records() == records
        assert len(history) == len(records)


def test_adding_twice_stores_once(filled: History, records: Records) -> None:
    for graph in records.graphs.values():
        filled.add_graph(graph)
    for environment in records.environments.values():
        filled.add_environment(environment)
    filled.add(records.measurements[0])
    assert filled.add_many([*records.measurements, *records.measurements]) == 0
    assert filled.import_records(records) == 0
    assert filled.add_many([]) == 0
    assert filled.records() == records


def test_what_is_not_held_is_said(filled: History) -> None:
    with pytest.raises(UsageError, match="holds no graph 'f00'"):
        filled.graph("f00")
    with pytest.raises(UsageError, match="holds no environment 'e00'"):
        filled.environment("e00")


def test_selection(filled: History, records: Records) -> None:
    (fingerprint,), (environment,) = records.graphs, records.environments
    assert len(list(filled.measurements(fingerprint=fingerprint, environment=environment))) == 6
    assert list(filled.measurements(fingerprint="other")) == []
    assert list(filled.measurements(environment="other")) == []
    assert {found.family for found in filled.measurements(family="cnn")} == {"cnn"}
    assert {found.run for found in filled.measurements(run="run1")} == {"run1"}
    assert len(list(filled.measurements(status=Status.OK))) == 4
    assert len(list(filled.measurements(status=Status.OK, family="cnn"))) == 2


def test_values_are_bound_and_never_parsed_as_sql(filled: History) -> None:
    assert list(filled.measurements(family="' OR 1=1 --")) == []
    strange = Measurement("f", Route(), "e", Status.OK, family="'; DROP TABLE measurements; --")
    filled.add(strange)
    assert list(filled.measurements(family=strange.family)) == [strange]


def test_reading_sees_one_moment_while_others_write(filled: History, place: str) -> None:
    reading = filled.measurements()
    next(reading)
    with History(place) as other:
        other.add(Measurement("f", Route(), "e", Status.OK))
    assert len(list(reading)) == 5
    assert len(filled) == 7


def test_export_and_import_round_trip(filled: History, records: Records, tmp_path: Path) -> None:
    filled.records().write_parquet(tmp_path / "out")
    with History(tmp_path / "second.db") as second:
        assert second.import_records(Records.read_parquet(tmp_path / "out")) == len(records)
        assert second.records() == records


def test_statistics(filled: History, records: Records) -> None:
    stats = filled.stats()
    (identity,) = records.environments
    assert (stats.measurements, stats.graphs, stats.environments) == (6, 1, 1)
    assert stats.by_status == {"ok": 4, "build_failed": 2}
    assert stats.by_family == {"cnn": 3, "transformer": 3}
    assert stats.by_model == {"net0": 3, "net1": 3}
    assert stats.by_backend == {"onnxruntime": 6}
    assert stats.by_environment == {identity: 6}
    assert stats.ok_share == pytest.approx(4 / 6)
    assert stats.first == min(measurement.created for measurement in records.measurements)
    assert stats.last == max(measurement.created for measurement in records.measurements)
    assert stats.bytes > 4096  # more than the empty file: what still waits in the log counts
    assert stats.to_json()["by_status"] == {"ok": 4, "build_failed": 2}


def test_statistics_of_nothing(place: str) -> None:
    with History(place) as history:
        stats = history.stats()
    assert (stats.measurements, stats.ok_share, stats.first, stats.last) == (0, 0.0, "", "")


def test_a_backend_is_unknown_when_its_environment_was_not_stored(place: str) -> None:
    with History(place) as history:
        history.add(Measurement("f", Route(), "elsewhere", Status.OK))
        assert history.stats().by_backend == {"unknown": 1}


# ---- several processes


def _write(place: str, records: Records, writer: int) -> None:
    with History(place) as history:
        history.import_records(records)
        for index in range(25):
            history.add(Measurement("f", Route(), "e", Status.OK, run=f"writer{writer}", model=str(index)))


def test_two_processes_make_and_write_one_history(place: str, records: Records) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(place, records, writer)) for writer in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0]
    with History(place) as history:
        runs = Counter(measurement.run for measurement in history.measurements())
        assert runs["writer0"] == runs["writer1"] == 25
        assert len(history) == 50 + len(records)


KILLED = """
import sys
from routecast.datasets.history import History
from routecast.datasets.measurement import Measurement, Status
from routecast.datasets.route import Route
history = History(sys.argv[1])
number = 0
while True:
    history.add(Measurement("f", Route(), "e", Status.OK, identity=str(number)))
    print(number, flush=True)
    number += 1
"""


def test_a_killed_writer_loses_nothing_it_was_told_is_stored(place: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, place], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line == "20\n":
            break
    os.kill(process.pid, signal.SIGKILL)
    told = 20 + len(process.stdout.read().split())
    process.stdout.close()
    process.wait()
    with History(place) as history:
        stored = {measurement.identity for measurement in history.measurements()}
        assert {str(number) for number in range(told + 1)} <= stored
        history.add(Measurement("f", Route(), "e", Status.OK))


# ---- what can be wrong with a file


def test_default_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ROUTECAST_HISTORY", raising=False)
    with History() as history:
        assert history.path == tmp_path / ".local/share/routecast/history.db"
        assert history.path.exists()
    monkeypatch.setenv("ROUTECAST_HISTORY", str(tmp_path / "other.db"))
    with History() as history:
        assert history.path == tmp_path / "other.db"


def test_a_url_names_a_file(tmp_path: Path) -> None:
    with History(f"sqlite:///{tmp_path}/a b%20?.db") as history:
        history.add(Measurement("f", Route(), "e", Status.OK))
    assert (tmp_path / "a b%20?.db").exists()


def test_other_urls_are_refused_without_repeating_their_password() -> None:
    with pytest.raises(UsageError, match="got a URL of mysql") as caught:
        History("mysql://me:secret@host/db")
    assert "secret" not in str(caught.value)


def test_not_a_database(path: Path) -> None:
    path.write_bytes(b"\x00\xff" * 4096)
    with pytest.raises(UsageError, match="is not an SQLite database"):
        History(path)


def test_damaged_database(filled_file: History, path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is damaged"):
        list(History(path).measurements())


def test_database_of_something_else(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE holidays (day)")
    with pytest.raises(UsageError, match="but not a routecast history"):
        History(path)


def test_newer_schema(filled_file: History, path: Path) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE routecast SET value = '3' WHERE key = 'schema'")
    with pytest.raises(UsageError, match="has schema 3, this routecast knows up to 2: upgrade"):
        History(path)


def test_folders_are_no_history(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        History(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot make the folder"):
        History(tmp_path / "file" / "history.db")


def test_file_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "nowhere" / "history.db")
    with pytest.raises(UsageError, match="cannot write to the history"):
        History(tmp_path / "link.db")


def test_locked(filled_file: History, path: Path, records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.2)
    history = History(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(RoutecastError, match="stayed locked"):
        history.add(replace(records.measurements[0], identity="new"))
    holder.execute("COMMIT")
    history.add(replace(records.measurements[0], identity="new"))
    assert len(history) == 7


def test_full_disk_keeps_what_was_there(filled_file: History, records: Records) -> None:
    def limit(connection: sqlite3.Connection, _record: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")

    event.listen(filled_file._engine, "connect", limit)
    large = [replace(records.measurements[0], identity=str(number), message="x" * 5000) for number in range(40)]
    with pytest.raises(RoutecastError, match="the disk is full"):
        filled_file.add_many(large)
    assert filled_file.records() == records


def test_environment_numbers_of_the_first_are_kept(path: Path) -> None:
    with History(path) as history:
        first = Environment("b", "1", "d", numbers={"cores": 2})
        history.add_environment(first)
        history.add_environment(replace(first, numbers={"cores": 4}))
        assert history.environment(first.identity) == first
