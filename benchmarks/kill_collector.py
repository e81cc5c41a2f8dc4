"""Kills a collector with SIGKILL in the middle, starts it again, and says what was lost.

    python benchmarks/kill_collector.py RESULT.json --after 200 FOLDER --minutes 9 ...

Everything after ``--after SECONDS`` goes to ``collect_gpu.py``. What the log says was stored before the kill must be in
the journals after the second run; what it says was begun and not stored was in flight.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from routecast.datasets.journal import read_journal

COLLECTOR = Path(__file__).with_name("collect_gpu.py")


def start(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts a collector that writes to ``log``."""
    with log.open("wb") as stream:
        return subprocess.Popen([sys.executable, str(COLLECTOR), *arguments], stdout=stream, stderr=subprocess.STDOUT)


def routes_held(folder: Path) -> list[tuple[str, str]]:
    """Model and route of everything in the journals; a torn last line does not count."""
    found = (item for path in folder.glob("*.jsonl") for item in read_journal(path)[0])
    return [(item.model, str(item.route)) for item in found]


def words_of(log: Path, word: str) -> int:
    """Number of lines of a log that begin with a time and ``word`` and are about a route."""
    lines = (line.split(" ", 2) for line in log.read_text(errors="replace").splitlines())
    return sum(len(line) == 3 and line[1] == word and not line[2].startswith("making ") for line in lines)


def main() -> None:
    """Runs, kills, runs again, compares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", type=Path)
    parser.add_argument("--after", type=float, required=True)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--processes", type=int, required=True)
    options, rest = parser.parse_known_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    began = time.time()

    def arguments() -> list[str]:
        left = options.minutes - (time.time() - began) / 60
        return [str(options.folder), "--minutes", f"{left:.2f}", "--processes", str(options.processes), *rest]

    first_log = options.folder / "first.log"
    collector = start(arguments(), first_log)
    time.sleep(options.after)
    children = psutil.Process(collector.pid).children(recursive=True)
    os.kill(collector.pid, signal.SIGKILL)
    collector.wait()
    gone, alive = psutil.wait_procs(children, timeout=10)
    before = routes_held(options.folder)
    begun, stored = words_of(first_log, "begun"), words_of(first_log, "stored")
    result = {
        "seconds_before_the_kill": options.after,
        "processes": options.processes,
        "descendants_when_killed": len(gone) + len(alive),
        "descendants_alive_10_s_later": len(alive),
        "routes_begun": begun,
        "routes_stored_by_the_log": stored,
        "routes_in_the_journals": len(before),
        "routes_in_flight_and_lost": begun - len(before),
    }
    options.result.write_text(json.dumps(result, indent=1))
    start(arguments(), options.folder / "second.log").wait()
    after = routes_held(options.folder)
    result |= {
        "routes_in_the_journals_at_the_end": len(after),
        "stored_before_the_kill_and_missing_at_the_end": len(set(before) - set(after)),
        "routes_measured_twice": len(after) - len(set(after)),
    }
    options.result.write_text(json.dumps(result, indent=1))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
