from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from routecast.datasets.exclusive import Busy
from routecast.datasets.history import History

HOLD = """
import sys, time
from routecast.datasets.history import History
with History(sys.argv[1]).alone("retrain"):
    print("held", flush=True)
    time.sleep(60)
"""


def check(place: str | Path) -> None:
    """Another process holds the lock; it is free again as soon as that process is killed."""
    with History(place) as history:
        with subprocess.Popen([sys.executable, "-c", HOLD, str(place)], stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            with pytest.raises(Busy, match="another retrain of this history is running") as caught:
                history.alone("retrain").__enter__()
            assert caught.value.exit_status == 75
            with history.alone("another purpose"):
                pass
            holder.kill()
        wait_until_free(history)
        with history.alone("retrain"):
            pass


def wait_until_free(history: History) -> None:
    """A server takes a moment to see that a process is gone."""
    for _ in range(100):
        try:
            with history.alone("retrain"):
                return
        except Busy:
            time.sleep(0.1)
    raise AssertionError("the lock outlived its holder")


def test_a_file_is_held_alone_until_its_holder_dies(tmp_path: Path) -> None:
    check(tmp_path / "history.db")


@pytest.mark.postgres
def test_a_database_is_held_alone_until_its_holder_dies(postgres_url: str) -> None:
    check(postgres_url)


@pytest.mark.postgres
def test_a_server_that_restarts_does_not_hide_what_the_block_raised(postgres, postgres_url: str) -> None:  # type: ignore[no-untyped-def]
    with History(postgres_url) as history, pytest.raises(KeyError, match="mine"), history.alone("retrain"):
        postgres.restart("immediate")
        raise KeyError("mine")
