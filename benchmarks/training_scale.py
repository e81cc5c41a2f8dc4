"""Trains on 10 thousand to 1 million measurements: rows per second, and the peak memory of the processes.

The larger histories are made of the shipped one: as many further hosts as it takes have measured exactly what the
shipped history holds, row by row, no number changed. So every row is a real one, and yet a point of its own: another
environment, which gives another example. One history has its rows
repeated by the same hosts instead, which are combined.

    python benchmarks/training_scale.py [--rows 10000 100000 1000000] [--processes 1 2] [--steps 30] [--url URL]
    python benchmarks/training_scale.py --whole [--rows ...]

The first measures reading and the steps of the networks, whose speed wants a quiet machine. With ``--url``, 100,000
measurements are copied into that PostgreSQL database, which must be empty, and streamed from it as well. The second
measures only memory, of whole training runs with forests and evaluation, and takes several minutes for each history.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from common import save

from routecast.datasets.environment import Environment
from routecast.datasets.history import History
from routecast.datasets.records import Records, builtin_records
from routecast.training.config import TrainConfig, TrainObserver

CHUNK = 16_384
POSTGRES_ROWS = 100_000
RESAMPLED = (
    "real rows of the shipped history, measured again, number for number, by as many copies of its hosts as needed"
)
REPEATED = "the same rows, measured again and again by the same hosts: repeats, which are combined"
NOTES = {"resampled": RESAMPLED, "repeated": REPEATED}


def main() -> None:
    """Runs each history in a process of its own; writes ``training_scale.json`` or ``training_memory.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=30, help="training steps of each of two networks")
    parser.add_argument("--url", help="of an empty PostgreSQL database")
    parser.add_argument("--whole", action="store_true", help="the memory of whole training runs instead")
    parser.add_argument("--histories", type=Path, help="keep the histories here, or find them here")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        case = whole if arguments.whole else speed
        print(json.dumps(case(arguments.case, arguments)))
        return
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, source, made in histories(arguments, arguments.histories or Path(scratch)):
            found = run(source, arguments)
            rows.append({"history": name, "made": made, **found})
            print(json.dumps(rows[-1]), flush=True)
    save("training_memory" if arguments.whole else "training_scale", rows, steps=arguments.steps, **NOTES)
    if not arguments.whole:
        draw(rows)


def histories(arguments: argparse.Namespace, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Name, source, and how it was made, of each history."""
    shipped = builtin_records()
    for made in NOTES:
        for count in arguments.rows if made == "resampled" else [max(arguments.rows)]:
            path = folder / f"{made}_{count}"
            if not path.exists():
                resample(shipped, count, path, repeats=made == "repeated")
            yield f"Parquet {count:,}", str(path), made
    if arguments.url:
        fill(shipped, POSTGRES_ROWS, arguments.url)
        yield f"PostgreSQL {POSTGRES_ROWS:,}", arguments.url, "resampled"


def resample(shipped: Records, count: int, folder: Path, *, repeats: bool) -> None:
    """Writes a history of so many rows of the shipped one, each copy of it under identities of its own."""
    copies = 1 if repeats else -(-count // len(shipped))
    hosts = copied_hosts(shipped, copies)
    environments = {found.identity: found for found in hosts.values()}
    Records(shipped.measurements, shipped.graphs, environments).write_parquet(folder)
    path = folder / "measurements.parquet"
    table = pq.read_table(path)
    names = table["environment"].to_pylist()
    moved = [[hosts[name, copy].identity for name in names] for copy in range(copies)]
    with pq.ParquetWriter(folder / "part", table.schema, compression="zstd", write_page_checksum=True) as writer:
        for start in range(0, count, CHUNK):
            places = np.arange(start, min(start + CHUNK, count))
            copied, rows = places // len(shipped), places % len(shipped)
            chunk = table.take(pa.array(rows))
            new = {
                "identity": [f"{place:032x}" for place in places],
                "environment": [moved[0 if repeats else copy][row] for copy, row in zip(copied, rows, strict=True)],
            }
            for name, values in new.items():
                place = table.schema.get_field_index(name)
                chunk = chunk.set_column(
                    place, table.schema.field(name), pa.array(values, table.schema.field(name).type)
                )
            writer.write_table(chunk)
    (folder / "part").replace(path)


def fill(shipped: Records, count: int, url: str) -> None:
    """Does the same in an empty PostgreSQL database, which makes the copies itself."""
    import psycopg

    hosts = copied_hosts(shipped, -(-count // len(shipped)))
    with History(url) as history:
        if len(history):
            raise SystemExit(f"{history.place} holds measurements already: give an empty database")
        environments = {found.identity: found for found in hosts.values()}
        history.import_records(Records(shipped.measurements, shipped.graphs, environments))
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE host (old text, copy int, new text)")
        with cursor.copy("COPY host FROM STDIN") as rows:
            for (old, copy), found in hosts.items():
                rows.write_row((old, copy, found.identity))
        cursor.execute(
            "INSERT INTO measurements (identity, fingerprint, environment, run, family, model, status, route, "
            "route_digest, created, ratio, content) "
            "SELECT md5(identity || copy), fingerprint, new, run, family, model, status, route, route_digest, created, "
            "ratio, replace(replace(content, identity, md5(identity || copy)), old, new) "
            "FROM measurements JOIN host ON old = environment WHERE copy > 0 ORDER BY copy, number LIMIT %s",
            (count - len(shipped),),
        )


def copied_hosts(shipped: Records, copies: int) -> dict[tuple[str, int], Environment]:
    """Every environment of the shipped history on as many hosts, the first of them its own."""
    return {
        (key, copy): replace(found, host=f"{found.host}-{copy}") if copy else found
        for key, found in shipped.environments.items()
        for copy in range(copies)
    }


def run(source: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One history in a process of its own."""
    command = [
        sys.executable, __file__, "--case", source, "--steps", str(arguments.steps),
        "--processes", *map(str, arguments.processes), *(["--whole"] if arguments.whole else []),
    ]  # fmt: skip
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{source} failed")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def peak_mb(pid: int) -> float:
    """Peak resident memory of a process in MB, 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((round(int(line.split()[1]) / 1024, 1) for line in lines if line.startswith("VmHWM")), 0.0)


class Watch(TrainObserver):
    """Notes when each pass ended and, five times a second, the peak memory of the processes that train."""

    def __init__(self) -> None:
        """Starts watching."""
        self.passes: list[float] = []
        self.peaks: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def epoch(self, member: int, epoch: int, losses: Mapping[str, float]) -> None:
        """See ``TrainObserver``."""
        self.passes.append(time.perf_counter())

    def stop(self) -> list[float]:
        """Ends watching; peaks in MB, the largest first, of torchrun's own process none."""
        self._over.set()
        self._thread.join()
        return sorted(self.peaks.values(), reverse=True)

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            for torchrun in psutil.Process().children():
                try:
                    workers = torchrun.children()
                except psutil.Error:
                    continue
                for worker in workers:
                    self.peaks[worker.pid] = max(self.peaks.get(worker.pid, 0.0), peak_mb(worker.pid))


def speed(source: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Reads a history, then trains two networks for a few steps with each number of processes."""
    from routecast.training.distributed import train_members
    from routecast.training.run import opened
    from routecast.training.trainer import example_store

    config = TrainConfig(members=2, epochs=1, pass_steps=arguments.steps)
    base = peak_mb(psutil.Process().pid)
    began = time.perf_counter()
    with opened(source) as history, example_store(history) as store:
        seconds = time.perf_counter() - began
        found: dict[str, Any] = {
            "measurements": store.summary.measurements,
            "examples": len(store),
            "routes": int(store.routes.sum()),
            "read_seconds": round(seconds, 2),
            "read_rows_per_second": round(store.summary.measurements / seconds),
            "disk_mb": round(store.path.stat().st_size / 1e6, 1),
            "imports_peak_mb": base,
            "read_peak_mb": peak_mb(psutil.Process().pid),
            "training": [],
        }
        for processes in arguments.processes:
            watch = Watch()
            try:
                train_members(store, [frozenset()], config, watch, processes)
            finally:
                workers = watch.stop()
            second = watch.passes[1] - watch.passes[0]  # starting the processes is in the first
            rows = store.routes.mean() * config.batch * processes * arguments.steps
            found["training"].append(
                {
                    "processes": processes,
                    "rows_per_second": round(rows / second),
                    "peak_mb": workers or [peak_mb(psutil.Process().pid)],
                }
            )
    return found


def whole(source: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """A whole training run of two members with forests and evaluation, in one process."""
    from routecast.training import train

    config = TrainConfig(members=2, epochs=1, pass_steps=arguments.steps)
    with tempfile.TemporaryDirectory() as output:
        outcome = train(source, builtin=False, track=False, output=output, config=config)
        measurements = json.loads((Path(output) / "model.json").read_text())["familiarity"]["measurements"]
    return {
        "measurements": measurements,
        "evaluated_routes": outcome.evaluation.routes,
        "peak_mb": peak_mb(psutil.Process().pid),
    }


def draw(rows: list[dict[str, Any]]) -> None:
    """Draws peak memory and rows per second against the number of measurements."""
    from matplotlib.figure import Figure

    found = [row for row in rows if row["made"] == "resampled" and row["history"].startswith("Parquet")]
    counts = [row["measurements"] for row in found]
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    memory, rate = figure.subplots(1, 2)
    memory.semilogx(counts, [row["read_peak_mb"] for row in found], "o-", label="reading")
    rate.loglog(counts, [row["read_rows_per_second"] for row in found], "o-", label="reading")
    for place, training in enumerate(found[0]["training"]):
        label = f"training, {training['processes']} process{'es' if training['processes'] > 1 else ''}"
        memory.semilogx(counts, [max(row["training"][place]["peak_mb"]) for row in found], "o-", label=label)
        rate.loglog(counts, [row["training"][place]["rows_per_second"] for row in found], "o-", label=label)
    memory.set(xlabel="measurements", ylabel="peak memory of a process, MB", ylim=(0, None))
    rate.set(xlabel="measurements", ylabel="rows per second")
    memory.legend()
    path = Path(__file__).parent / "results" / "training_scale.png"
    figure.savefig(path, dpi=120)
    print(f"written: {path}")


if __name__ == "__main__":
    main()
