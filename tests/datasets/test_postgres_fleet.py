"""A fleet on one PostgreSQL server: nothing is lost or doubled when a worker is killed and the server crashes."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Connection, Engine, event, text

from routecast.datasets.history import History
from routecast.datasets.measurement import Measurement, Status
from routecast.datasets.route import Route

if TYPE_CHECKING:
    from tests.conftest import PostgresServer

WRITERS = 16
EACH = 6250
BATCH = 250

# Processes that know all modules already: sixteen fresh ones would import for longer than they write.
processes = multiprocessing.get_context("fork")


def _share(writer: int) -> Iterator[Measurement]:
    """What a writer measures; writing it again gives the same identities."""
    for number in range(EACH):
        yield Measurement(
            f"graph{writer % 6}", Route({"k": str(number)}), f"host{writer}", Status.OK, model="net", family="cnn",
            ratio=0.5, created="2026-01-01", run=f"run{writer}", identity=f"{writer}-{number}",
        )  # fmt: skip


def _write(url: str, writer: int, batch: int) -> None:
    share = list(_share(writer))
    with History(url) as history:
        for start in range(0, EACH, batch):
            history.add_many(share[start : start + batch])


def _write_and_wait(url: str, writer: int, written: Event) -> None:
    """Writes a whole share, and stops just before the commit that would make it last."""

    def stop(connection: Connection) -> None:
        if connection.execute(text(f"SELECT count(*) FROM measurements WHERE run = 'run{writer}'")).scalar() == EACH:
            written.set()
            time.sleep(600)

    with History(url) as history:
        event.listen(Engine, "commit", stop)
        history.add_many(_share(writer))


def _read(url: str, finished: Event) -> None:
    """Reads everything again and again: nothing twice, and never less than before."""
    before = passes = 0
    with History(url) as history:
        while not finished.is_set() or not passes:
            identities = [item.identity for item in history.measurements()]
            assert len(set(identities)) == len(identities) >= before
            before = len(identities)
            passes += 1
            finished.wait(3)


def _wait_until(true: Callable[[], bool], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.postgres
def test_sixteen_writers_a_killed_one_and_a_server_that_crashes(postgres: PostgresServer, postgres_url: str) -> None:
    finished, written = processes.Event(), processes.Event()
    with History(postgres_url) as history:
        reader = processes.Process(target=_read, args=(postgres_url, finished))
        victim = processes.Process(target=_write_and_wait, args=(postgres_url, 0, written))
        successor = processes.Process(target=_write, args=(postgres_url, 0, BATCH))
        writers = [processes.Process(target=_write, args=(postgres_url, writer, BATCH)) for writer in range(1, WRITERS)]
        try:
            for process in (reader, victim, *writers):
                process.start()

            assert written.wait(120), victim
            victim.kill()
            victim.join()
            assert next(history.measurements(run="run0"), None) is None  # all of a batch, or nothing
            successor.start()

            _wait_until(lambda: len(history) > WRITERS * EACH / 4)
            postgres.restart("immediate")
            assert len(history) < WRITERS * EACH  # they were still writing

            for process in (successor, *writers):
                process.join(300)
            finished.set()
            reader.join(60)
            assert [process.exitcode for process in (successor, reader, *writers)] == [0] * (WRITERS + 1)
        finally:
            for process in (reader, victim, successor, *writers):
                if process.pid is not None:
                    process.kill()

        stored = Counter(item.identity for item in history.measurements())
        assert set(stored.values()) == {1}
        assert stored.keys() == {item.identity for writer in range(WRITERS) for item in _share(writer)}
        assert stored.total() == 100_000
