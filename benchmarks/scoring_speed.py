"""How long scoring takes once a graph is encoded, and how long the command line takes to answer ``--help``.

python benchmarks/scoring_speed.py [--routes 10000] [--network conformer_w96_b2_t64] [--repeats 5]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import save

from routecast.costmodel import load_cost_model
from routecast.datasets.model import open_model
from routecast.datasets.zoo import network
from routecast.tuner.backends.registry import get_backend


def main() -> None:
    """Times and writes ``results/scoring_speed.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--routes", type=int, default=10_000)
    parser.add_argument(
        "--network", default="conformer_w96_b2_t64", help="a network of the zoo with about 500 operators"
    )
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    backend, cost_model = get_backend("onnxruntime"), load_cost_model()
    with tempfile.TemporaryDirectory() as scratch:
        item = network(arguments.network)
        model = open_model(item.make(Path(scratch)), item.shapes, name=item.name)
    space = backend.space(model)
    routes = space.sample(arguments.routes, np.random.default_rng(0))
    environment = backend.environment()
    rows = {
        "network": model.name,
        "nodes": len(model.graph.nodes),
        "routes": len(routes),
        "encode_seconds": timed(lambda: cost_model.view(model.graph, environment), arguments.repeats),
    }
    views = iter([cost_model.view(model.graph, environment) for _ in range(arguments.repeats)])
    rows["score_seconds"] = timed(lambda: next(views).predict(routes), arguments.repeats)
    command = [sys.executable, "-m", "routecast.tuner.cli", "--help"]
    rows["help_seconds"] = timed(
        lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL), arguments.repeats
    )
    for name in ("encode_seconds", "score_seconds", "help_seconds"):
        seconds = rows[name]
        print(f"{name:16s} median {statistics.median(seconds):.3f}  least {min(seconds):.3f}  most {max(seconds):.3f}")
    save("scoring_speed", rows)


def timed(action: Callable[[], object], repeats: int) -> list[float]:
    """Wall-clock seconds of each repeat."""
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        found.append(round(time.perf_counter() - began, 4))
    return found


if __name__ == "__main__":
    main()
