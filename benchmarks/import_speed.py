"""How long a tuning cache of trtexec takes to become history: read, checked, and stored in a new SQLite file.

python benchmarks/import_speed.py [--lines 10000] [--repeats 5]

The lines are made here, over the compiler's real knobs; no time in them was measured, and none is kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from common import save

from routecast.datasets.history import History
from routecast.datasets.importers import ImportRequest, import_files
from routecast.datasets.zoo import network
from routecast.tuner.backends.tensorrt.knobs import CompilerKnob, snapshot

NETWORK = "onnx_squeezenet"
DEVICE = "a made-up device"


def cache_lines(count: int, onnx: str) -> Iterator[str]:
    """A full search: each line names every knob of the expression, and some routes crash or are inaccurate."""
    rng = np.random.default_rng(0)
    listing = snapshot()
    knobs = [knob for knob in listing.knobs if len(knob.values) > 1 and not knob.unsafe]
    expression = " ".join(f"-{knob.name}=[{'|'.join(knob.values)}]" for knob in knobs)
    argv = ["trtexec", f"--onnx={onnx}", f"--tuneBuildRoutes={expression}", "--tuningSearch=full"]
    yield json.dumps(
        {
            "tuner_version": listing.tuner_version,
            "accuracy_algorithm": "L0",
            "accuracy_parameter": {"atol": 1e-5, "rtol": 1e-5, "epsilon": 0.01},
            "searching_algorithm": "full",
            "command_line": " ".join(argv),
            "default_build_route": " ".join(f"-{knob.name}={knob.default}" for knob in listing.knobs),
            "tuning_expr": expression,
            "files": {"onnx": onnx},
            "argv": argv,
        }
    )
    for number in range(count):
        yield json.dumps(_line(number, knobs, rng))


def _line(number: int, knobs: list[CompilerKnob], rng: np.random.Generator) -> dict[str, object]:
    values = {knob.name: knob.default for knob in knobs}
    changed = rng.choice(len(knobs), size=int(rng.integers(0, 6)) if number else 0, replace=False)
    for index in changed:
        values[knobs[index].name] = str(rng.choice(knobs[index].values))
    ending = rng.random() if number else 1.0
    crash, inaccurate = ending < 0.05, 0.05 <= ending < 0.1
    return {
        "iter": number,
        "build_route": " ".join(f"-{name}={value}" for name, value in values.items()),
        "crash": crash,
        "error_message": "child killed by signal 11" if crash else "child exited with status 1" if inaccurate else "",
        "accuracy_loss": None if crash else {"output": 0.5 if inaccurate else 0.0},
        "gpu_time": None if crash else float(rng.uniform(0.5, 2.0)),
    }


def main() -> None:
    """Times and writes ``results/import_speed.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = network(NETWORK).make(folder)
        cache = folder / "tuned.json"
        cache.write_text("".join(f"{line}\n" for line in cache_lines(arguments.lines, str(model))))
        request = ImportRequest(model=model, shapes=network(NETWORK).shapes or {}, device=DEVICE)
        for repeat in range(arguments.repeats):
            start, busy = time.perf_counter(), time.process_time()
            imported = import_files([cache], request)
            read = time.perf_counter()
            with History(folder / f"{repeat}.db") as history:
                new = history.import_records(imported.records)
            stored = time.perf_counter()
            (report,) = imported.files
            assert report.found == arguments.lines and new == report.measurements, report
            rows.append(
                {
                    "read_seconds": read - start,
                    "store_seconds": stored - read,
                    "seconds": stored - start,
                    "cpu_seconds": time.process_time() - busy,
                    "measurements": new,
                    "skipped": dict(report.skipped),
                }
            )
        size = cache.stat().st_size
    median = statistics.median(row["seconds"] for row in rows)
    print(f"{arguments.lines:,} lines, {size / 2**20:.0f} MiB: {median:.2f} s (median of {len(rows)})")
    save("import_speed", rows, lines=arguments.lines, cache_bytes=size, network=NETWORK, median_seconds=median)


if __name__ == "__main__":
    main()
