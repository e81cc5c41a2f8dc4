"""Collects a history on a GPU: many processes build and load beside each other, timings run alone.

    ROUTECAST_RTX_COMPILER_KNOBS=1 python benchmarks/collect_gpu.py FOLDER --minutes 9 --processes 22

Each process takes network after network, the least measured first, and writes a journal of its own in FOLDER. What a
journal there or the shipped history holds is not measured again, so that runs and hosts add to one history. The GPU
lock of the backend keeps loads and timings apart. On a host of several GPUs start it once for each, with
CUDA_VISIBLE_DEVICES and ``--share 0/2``, ``--share 1/2``.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from gpu_networks import gpu_networks

from routecast.costmodel import BUILTIN as COST_MODEL
from routecast.datasets.journal import Journal
from routecast.datasets.measurement import Measurement
from routecast.datasets.records import BUILTIN, Records
from routecast.tuner.collection import CollectConfig, collect
from routecast.tuner.measure.timing import TimingConfig
from routecast.tuner.measure.zygote import die_with_parent
from routecast.tuner.progress import describe
from routecast.tuner.results import Observer, RoutePrediction

# Blocks of at least 10 ms: on a quiet GPU six pairs of them settle a ratio to a few tenths of a per cent.
TIMING = TimingConfig(block_ms=10.0, min_blocks=6, max_blocks=24, seconds=1.0)


class Log(Observer):
    """Prints a line when a route is begun and one when it has been measured."""

    def stage(self, text: str) -> None:
        """Says what is begun."""
        print(f"{time.time():.1f} begun {text}", flush=True)

    def measured(
        self,
        measurement: Measurement,
        prediction: RoutePrediction | None,
        best: Measurement | None,
        done: int,
        total: int,
    ) -> None:
        """Says how it ended."""
        line = describe(measurement, prediction, done, total)
        print(f"{time.time():.1f} stored {measurement.model}: {line} {measurement.message[:120]}", flush=True)


def known(folder: Path, shipped: Path) -> Records:
    """All that was measured before."""
    records = Records.read_parquet(shipped)
    for path in sorted(folder.glob("*.jsonl")):
        records = records.merged(Records.read_journal(path))
    return records


def collect_one(name: str, options: argparse.Namespace, until: float) -> None:
    """Measures one network, in a process of its own, which takes torch and its memory with it when it ends."""
    die_with_parent()
    network = next(item for item in gpu_networks() if item.name == name)
    held = known(options.folder, options.known)
    minutes = max(0.0, until - time.time()) / 60
    config = CollectConfig(
        options.backend,
        per_network=options.routes,
        favourites=options.favourites,
        screens=options.screens,
        cost_model=COST_MODEL,
        seed=options.seed,
        timeout_s=options.timeout,
        minutes=minutes,
        timing=TIMING,
    )
    with Journal(options.folder / f"history-{time.time_ns()}-{os.getpid()}.jsonl") as journal:
        summary = collect([network], journal, config, Log(), held)
    for skipped, reason in summary.skipped.items():
        print(f"{skipped}: skipped: {reason[:300]}", flush=True)


def main() -> None:
    """Starts the processes and waits for them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--known", type=Path, default=BUILTIN / "tensorrt_rtx_h200")
    parser.add_argument("--backend", default="tensorrt-rtx")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--processes", type=int, default=14)
    parser.add_argument("--routes", type=int, default=20)
    parser.add_argument("--favourites", type=int, default=0, help="of the shipped cost model, beside the routes")
    parser.add_argument("--screens", type=int, default=0, help="routes that change many knobs at once")
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", default="0/1", help="I/N: of the networks, every N-th from the I-th on")
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    part, parts = map(int, options.share.split("/"))
    held = known(options.folder, options.known)
    before = len(held)
    times = Counter(item.model for item in held.measurements)
    names = [
        item.name for item in gpu_networks() if not item.held_out and (item.name in options.only or not options.only)
    ]
    mine = sorted(names[part::parts], key=times.__getitem__)  # shared out first: shares must not depend on the history
    began = time.time()
    until = began + 60 * options.minutes

    def run(name: str) -> None:
        process = get_context("spawn").Process(target=collect_one, args=(name, options, until))
        process.start()
        process.join()
        if process.exitcode:
            print(f"{name}: FAILED: its process ended with exit status {process.exitcode}", flush=True)

    with ThreadPoolExecutor(options.processes) as pool:
        for _ in pool.map(lambda name: run(name) if time.time() < until else None, mine):
            pass
    measured = len(known(options.folder, options.known)) - before
    seconds = time.time() - began
    print(json.dumps({"measured": measured, "seconds": round(seconds), "per_second": round(measured / seconds, 3)}))


if __name__ == "__main__":
    main()
