"""Times the default route again and again, alone and beside others, to see what moves a latency.

    python benchmarks/timing_states.py NETWORK.onnx --backend tensorrt-rtx --beside alone building holding loading

Every timing is a child of its own, as in a tune, but none is made again for being slow. Beside it run ``--neighbours``
processes that compute on the CPU, build the network, hold it loaded, or load it again and again under the GPU's lock.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import save

from routecast.datasets.measurement import Purpose
from routecast.datasets.model import open_model, write_static
from routecast.datasets.route import Route
from routecast.tuner.backends.base import Artifact, Backend, BuildRequest
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.backends.tensorrt.backend import TensorRtFamily
from routecast.tuner.measure.workbench import BenchConfig, Workbench

SLOW = 0.03
"""A log ratio to the median of those timed alone that counts as slow."""


def main() -> None:
    """Times everything, row after row, and writes ``results/timing_states.json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--backend", default="onnxruntime")
    parser.add_argument("--beside", nargs="*", default=["alone", *NEIGHBOURS], choices=["alone", *NEIGHBOURS])
    parser.add_argument("--neighbours", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=12)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    model, backend = open_model(options.model), get_backend(options.backend)
    with (
        tempfile.TemporaryDirectory() as scratch,
        Workbench(model, backend, backend.space(model), Path(scratch, "bench"), BenchConfig(attempts=1)) as bench,
    ):
        bench.start()
        for kind in options.beside:
            with neighbours(kind, options, Path(scratch)):
                for _ in range(options.repeats):
                    rows.append({"beside": kind, **timed(bench)})
                    print("{beside:<10} {latency_ms:.4f} {default_ms:.4f} ms".format(**rows[-1]), flush=True)
        environment = bench.environment
    show(rows)
    save("timing_states", rows, environment, network=model.name, neighbours=options.neighbours)


def timed(bench: Workbench) -> dict[str, Any]:
    """One timing of the default route beside itself, with every block of both in ms."""
    found = bench.measure(Route(), Purpose.CONTROL)
    names = ("latency_ms", "default_ms", "blocks_ms", "default_blocks_ms", "device_state")
    return {name: getattr(found, name) for name in names}


def show(rows: list[dict[str, Any]]) -> None:
    """Prints how the timings beside each kind of neighbour are spread."""
    usual = median(row["default_ms"] for row in rows if row["beside"] == rows[0]["beside"])
    for kind in dict.fromkeys(row["beside"] for row in rows):
        logs = np.log([row["default_ms"] / usual for row in rows if row["beside"] == kind])
        slow = int((logs > SLOW).sum())
        print(f"{kind:<10} {np.median(logs):+.2%} [{logs.min():+.2%}, {logs.max():+.2%}], slow {slow} of {len(logs)}")


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
        _built(static, backend, folder / str(number))


def _hold(path: Path, backend: Backend, folder: Path, ready: Callable[[], None]) -> None:
    static = write_static(open_model(path), folder)
    loaded = backend.load(_built(static, backend, folder / "built"), Route(), static)
    _let_go(backend)
    ready()
    time.sleep(3600)
    loaded.close()


def _load(path: Path, backend: Backend, folder: Path, ready: Callable[[], None]) -> None:
    static = write_static(open_model(path), folder)
    built = _built(static, backend, folder / "built")
    ready()
    while True:
        backend.load(built, Route(), static).close()
        _let_go(backend)


def _built(static: Path, backend: Backend, folder: Path) -> Artifact:
    folder.mkdir()
    return backend.build(BuildRequest(static, Route(), folder))


def _let_go(backend: Backend) -> None:
    """Lets others have the GPU, where the backend holds one."""
    if isinstance(backend, TensorRtFamily):
        backend.release()


NEIGHBOURS = {"computing": _compute, "building": _build, "holding": _hold, "loading": _load}


if __name__ == "__main__":
    main()
