"""Times the default route again and again, alone and beside others, to see what moves a latency.

    python benchmarks/timing_states.py NETWORK.onnx --backend tensorrt-rtx --beside alone building holding loading

Each of ``--children`` forked processes loads the network and times it, then again and again after it has renewed
nothing, what is prepared (inputs and CUDA graph), or the executable (context and device memory), in random order. A
second mode of the latency so shows what it belongs to: what must be renewed to leave it, or to come into it. Each load
happens on one core, drawn at random: host memory that the driver takes then lies near it. Beside them ``--neighbours``
processes compute on the CPU, build the network, hold it loaded, or load it again and again under the GPU's lock.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import groupby, pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import save
from rich.console import Console
from rich.table import Table

from routecast.datasets.model import open_model, write_static
from routecast.datasets.route import Route
from routecast.tuner.backends.base import Artifact, Backend, BuildRequest, Executable
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.backends.tensorrt.backend import TensorRtFamily
from routecast.tuner.measure.inputs import InputSet, generate_inputs

SLOW = 0.025
"""A log ratio to the lower quartile of all latencies that counts as slow."""
RENEWED = ("nothing", "preparation", "executable")
"""What a child renews before it times again; its first timing has a new process."""
BLOCKS, BLOCK_MS = 5, 15.0

Row = dict[str, Any]


def main() -> None:
    """Times everything, child after child, and writes ``results/timing_states.json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--backend", default="onnxruntime")
    parser.add_argument("--beside", nargs="*", default=["alone", *NEIGHBOURS], choices=["alone", *NEIGHBOURS])
    parser.add_argument("--neighbours", type=int, default=8)
    parser.add_argument("--children", type=int, default=12, help="beside each kind of neighbour")
    parser.add_argument("--renewals", type=int, default=3, help="of each kind, in each child")
    options = parser.parse_args()
    model, backend, rows = open_model(options.model), get_backend(options.backend), list[Row]()
    inputs = generate_inputs(model, seed=0)
    # Children of a server without threads and without a GPU's context, as in a tune.
    context = get_context("forkserver")
    context.set_forkserver_preload(["__main__", *backend.preload])
    with (
        tempfile.TemporaryDirectory() as scratch,
        ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as children,
    ):
        static = write_static(model, Path(scratch))
        built = children.submit(_built, static, options.backend, Path(scratch, "built")).result()
        for kind in options.beside:
            with neighbours(kind, options, Path(scratch)):
                for child in range(options.children):
                    task = (options.backend, built, static, inputs, options.renewals, child)
                    found = children.submit(timed, *task).result()
                    rows += [{"beside": kind, "child": child, **row} for row in found]
                    print(f"{kind:<10}", *(f"{row['latency_ms']:.4f}" for row in found), "ms", flush=True)
            save("timing_states", rows, backend.environment(), network=model.name, neighbours=options.neighbours)
    Console().print(table(rows), by_core(rows))


def timed(name: str, built: Artifact, static: Path, inputs: InputSet, renewals: int, seed: int) -> list[Row]:
    """Latencies in ms of a network in this process, the first and then one after each renewal."""
    backend, rng, rows = get_backend(name), np.random.default_rng(seed), list[Row]()
    cores = sorted(os.sched_getaffinity(0))

    def load() -> tuple[int, Executable]:
        core = int(rng.choice(cores))
        with _on(core):
            loaded = backend.load(built, Route(), static)
            loaded.prepare(inputs)
        return core, loaded

    core, executable = load()
    for renewed in ["process", *rng.permutation(RENEWED * renewals).tolist()]:
        if renewed == "executable":
            executable.close()
            core, executable = load()
        elif renewed == "preparation":
            executable.prepare(inputs)
        measured = {**_latency(executable), "device_state": backend.device_state()}
        rows.append({"renewed": renewed, "core": core, **measured})
    executable.close()
    return rows


@contextlib.contextmanager
def _on(core: int) -> Iterator[None]:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _latency(executable: Executable) -> Row:
    repeats = math.ceil(BLOCK_MS / executable.time(1))
    blocks = [executable.time(repeats) for _ in range(BLOCKS)]
    return {"latency_ms": median(blocks), "blocks_ms": blocks}


def table(rows: list[Row]) -> Table:
    """How many timings were slow after each renewal, by whether the one before it in the same process was."""
    usual = _usual(rows)
    shown = Table("beside", "renewed", "slow after fast", "slow after slow", title=f"usually {usual:.4g} ms")
    slow = partial(_is_slow, usual=usual)
    for kind, found in groupby(rows, lambda row: row["beside"]):
        same = list(found)
        firsts = [slow(row) for row in same if row["renewed"] == "process"]
        shown.add_row(kind, "process", f"{sum(firsts)} of {len(firsts)}", "")
        steps = [(slow(one), other["renewed"], slow(other)) for one, other in pairwise(same)]
        for renewed in RENEWED:
            after = {before: [now for was, what, now in steps if (was, what) == (before, renewed)] for before in (0, 1)}
            shown.add_row(kind, renewed, *(f"{sum(after[before])} of {len(after[before])}" for before in (0, 1)))
    return shown


def by_core(rows: list[Row]) -> Table:
    """How many timings were slow, by the core that the network was loaded on."""
    usual = _usual(rows)
    shown = Table("loaded on core", "slow")
    for core in sorted({row["core"] for row in rows}):
        found = [_is_slow(row, usual) for row in rows if row["core"] == core]
        shown.add_row(str(core), f"{sum(found)} of {len(found)}")
    return shown


def _usual(rows: list[Row]) -> float:
    return float(np.quantile([row["latency_ms"] for row in rows], 0.25))


def _is_slow(row: Row, usual: float) -> bool:
    return math.log(row["latency_ms"] / usual) > SLOW


@contextlib.contextmanager
def neighbours(kind: str, options: argparse.Namespace, scratch: Path) -> Iterator[None]:
    """Keeps as many processes busy with one kind of work, once each of them has begun."""
    context = get_context("spawn")
    ready = context.Semaphore(0)
    count = options.neighbours if kind in NEIGHBOURS else 0
    folders = [Path(tempfile.mkdtemp(dir=scratch)) for _ in range(count)]
    work = [context.Process(target=_work, args=(kind, options.model, options.backend, each, ready)) for each in folders]
    for process in work:
        process.start()
    for _ in work:
        ready.acquire(timeout=120)
    try:
        yield
    finally:
        for process in work:
            process.kill()
            process.join()


def _work(kind: str, path: Path, backend: str, folder: Path, ready: Any) -> None:
    NEIGHBOURS[kind](path, get_backend(backend), folder, ready.release)


def _compute(path: Path, backend: Backend, folder: Path, ready: Callable[[], None]) -> None:
    del path, backend, folder
    matrix = np.ones((256, 256))
    ready()
    while True:
        matrix = np.tanh(matrix @ matrix)


def _build(path: Path, backend: Backend, folder: Path, ready: Callable[[], None]) -> None:
    static = write_static(open_model(path), folder)
    ready()
    for number in range(1_000_000):
        _built(static, backend.name, folder / str(number))


def _hold(path: Path, backend: Backend, folder: Path, ready: Callable[[], None]) -> None:
    static = write_static(open_model(path), folder)
    loaded = backend.load(_built(static, backend.name, folder / "built"), Route(), static)
    _let_go(backend)
    ready()
    time.sleep(3600)
    loaded.close()


def _load(path: Path, backend: Backend, folder: Path, ready: Callable[[], None]) -> None:
    static = write_static(open_model(path), folder)
    built = _built(static, backend.name, folder / "built")
    ready()
    while True:
        backend.load(built, Route(), static).close()
        _let_go(backend)


def _built(static: Path, backend: str, folder: Path) -> Artifact:
    folder.mkdir()
    return get_backend(backend).build(BuildRequest(static, Route(), folder))


def _let_go(backend: Backend) -> None:
    """Lets others have the GPU, where the backend holds one."""
    if isinstance(backend, TensorRtFamily):
        backend.release()


NEIGHBOURS = {"computing": _compute, "building": _build, "holding": _hold, "loading": _load}


if __name__ == "__main__":
    main()
