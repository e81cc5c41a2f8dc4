from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import pytest

from routecast.tuner.backends.tensorrt.lock import GpuLock


@pytest.fixture
def lock(tmp_path):
    held = GpuLock("gpu", tmp_path)
    yield held
    held.release()


HOLD = """
import sys, time
from pathlib import Path
from routecast.tuner.backends.tensorrt.lock import GpuLock
lock = GpuLock("gpu", Path(sys.argv[1]))
getattr(lock, sys.argv[2])()
print("held", flush=True)
time.sleep(float(sys.argv[3]))
"""


def other(folder, side, seconds):
    """Another process that holds one side for some seconds."""
    return subprocess.Popen([sys.executable, "-c", HOLD, str(folder), side, str(seconds)], stdout=subprocess.PIPE)


def test_loads_run_beside_each_other(lock, tmp_path):
    with other(tmp_path, "share", 30) as process:
        assert process.stdout.readline() == b"held\n"
        began = time.monotonic()
        lock.share()
        assert time.monotonic() - began < 5
        process.kill()


@pytest.mark.parametrize(("theirs", "ours"), [("share", "alone"), ("alone", "share"), ("alone", "alone")])
def test_a_timing_runs_alone(lock, tmp_path, theirs, ours):
    with other(tmp_path, theirs, 0.5) as process:
        assert process.stdout.readline() == b"held\n"
        getattr(lock, ours)()
        # It was let in because the other had let go: by then the other was ending.
        assert process.wait(timeout=1) == 0


@pytest.mark.parametrize("side", ["share", "alone"])
def test_it_says_when_it_waits(lock, tmp_path, side):
    entered = []
    lock.waiting = lambda: contextlib.nullcontext(entered.append(side))
    getattr(lock, side)()
    assert not entered
    lock.release()
    with other(tmp_path, "alone", 0.3) as process:
        assert process.stdout.readline() == b"held\n"
        getattr(lock, side)()
        assert process.wait(timeout=1) == 0
    assert entered == [side]


def test_a_killed_process_holds_nothing(lock, tmp_path):
    with other(tmp_path, "alone", 60) as process:
        assert process.stdout.readline() == b"held\n"
        process.kill()
    began = time.monotonic()
    lock.alone()
    assert time.monotonic() - began < 5


def test_a_waiting_timing_goes_before_a_new_load(lock, tmp_path):
    lock.share()
    with other(tmp_path, "alone", 0.3) as timing:
        time.sleep(0.6)  # it waits for us
        late = GpuLock("gpu", tmp_path)
        with other(tmp_path, "share", 0.1) as loading:
            time.sleep(0.6)
            assert loading.poll() is None
            lock.release()
            assert timing.stdout.readline() == b"held\n"
            assert loading.stdout.readline() == b"held\n"
            assert timing.poll() is not None or timing.wait(timeout=1) == 0
        late.release()


def test_holding_again_does_nothing(lock):
    lock.share()
    lock.share()
    lock.alone()
    lock.alone()
    lock.share()  # what holds it alone holds it shared
    lock.release()
    lock.release()
