"""Tests of the journal."""

from __future__ import annotations

import errno
import multiprocessing
import os
from pathlib import Path

import pytest

from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.journal import Journal
from routecast.datasets.records import Records


def fill(path: Path, records: Records) -> None:
    """Writes all records to a journal."""
    with Journal(path) as journal:
        for graph in records.graphs.values():
            journal.add_graph(graph)
        for environment in records.environments.values():
            journal.add_environment(environment)
        journal.add_many(records.measurements)


def test_a_journal_holds_what_was_added_once(records: Records, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "journal.jsonl"
    fill(path, records)
    content = path.read_bytes()
    fill(path, records)
    assert path.read_bytes() == content
    assert Records.read_journal(path) == records
    with Journal(path) as journal:
        assert journal.records() == records
        assert journal.add_many(records.measurements) == 0


@pytest.mark.parametrize("cut", [1, 2, 30, 200])
def test_a_torn_last_line_is_skipped_and_written_over(records: Records, tmp_path: Path, cut: int) -> None:
    path = tmp_path / "journal.jsonl"
    fill(path, records)
    whole = path.read_bytes()
    os.truncate(path, len(whole) - cut)
    kept = len(records) if cut == 1 else len(records) - 1
    assert len(Records.read_journal(path)) == kept
    with Journal(path) as journal:
        assert journal.add_many(records.measurements) == len(records) - kept
    assert path.read_bytes() == whole


def test_a_damaged_line_in_the_middle_is_reported(records: Records, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    fill(path, records)
    lines = path.read_bytes().split(b"\n")
    lines[3] = lines[3][:50]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(UsageError, match="line 4 is not a journal's line"):
        Records.read_journal(path)
    with pytest.raises(UsageError, match="line 4 is not a journal's line"):
        Journal(path)


@pytest.mark.parametrize("content", [b"my notes", b"my notes\nand more\n", b'{"a": 1}'])
def test_other_files_are_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="journal"):
        Journal(path)
    assert path.read_bytes() == content


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot open the journal"):
        Journal(tmp_path)
    with pytest.raises(UsageError, match="cannot read the journal"):
        Records.read_journal(tmp_path / "none")


def _open(path: Path, answer: multiprocessing.Queue[str]) -> None:
    try:
        Journal(path)
    except UsageError as error:
        answer.put(str(error))
    else:
        answer.put("opened")


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answer: multiprocessing.Queue[str] = context.Queue()
    with Journal(tmp_path / "j") as journal:
        journal.records()  # reading it here must not release the lock
        process = context.Process(target=_open, args=(tmp_path / "j", answer))
        process.start()
        assert "another process writes to the journal" in answer.get(timeout=30)
        process.join()


def test_a_full_disk_is_reported_and_leaves_whole_lines(
    records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j"
    journal = Journal(path)
    journal.add(records.measurements[0])
    write = os.write

    def full(file: int, content: bytes) -> int:
        if len(content) > 50:
            return write(file, content[:50])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", lambda file, content: full(file, content[:60]))
    with pytest.raises(RoutecastError, match="No space left on device; free some space"):
        journal.add(records.measurements[1])
    monkeypatch.undo()
    assert path.read_bytes().endswith(b"\n")
    journal.add(records.measurements[1])
    assert journal.records().measurements == records.measurements[:2]
    journal.close()
    journal.close()
