"""Tunes networks of families that the shipped history does not hold, against random routes.

For each network: 64 random routes are measured one by one and the best four of them confirmed (the pool's best); then,
for each seed, a tune with the cost model and one with random routes, both with k = 8 builds and the same confirmation.
Prints the confirmed ratio to the default route of each, and the regret of both against the pool's best.

    python benchmarks/heldout_tuning.py [NETWORK...] [--seeds 5] [--pool 64] [--builds 8]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from common import save
from rich.console import Console
from rich.table import Table

from routecast.datasets.history import History
from routecast.datasets.measurement import Measurement, Purpose
from routecast.datasets.model import Model, open_model
from routecast.datasets.zoo import Network, network, networks
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.measure.workbench import BenchConfig, Workbench
from routecast.tuner.confirmation import CONFIRMATIONS, Confirmation
from routecast.tuner.tuning import TuneConfig, tune

CONFIRMED_OF_POOL = 4


def main() -> None:
    """Runs the comparison and writes ``results/heldout_tuning.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("networks", nargs="*", help="names in the zoo; default: one of each held-out family")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pool", type=int, default=64)
    parser.add_argument("--builds", type=int, default=8)
    arguments = parser.parse_args()
    chosen = [network(name) for name in arguments.networks] or one_of_each_family()
    rows = []
    for item in chosen:
        rows.append(compare(item, arguments.seeds, arguments.pool, arguments.builds))
        show(rows)
        save("heldout_tuning", rows, seeds=arguments.seeds, pool=arguments.pool, builds=arguments.builds)


def one_of_each_family() -> list[Network]:
    """The first network of each held-out family."""
    first: dict[str, Network] = {}
    for item in networks():
        if item.held_out:
            first.setdefault(item.family, item)
    return list(first.values())


def compare(item: Network, seeds: int, pool: int, builds: int) -> dict[str, Any]:
    """All figures of one network."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = open_model(item.make(folder), item.shapes, name=item.name, family=item.family)
        best, measured = best_of_pool(model, item, pool, folder / "pool")
        row: dict[str, Any] = {
            "network": item.name,
            "family": item.family,
            "pool_best": best.ratio if best else 1.0,
            "pool_route": str(best.route) if best else "",
            "pool_ok": sum(found.ok for found in measured),
        }
        for strategy in ("model", "random"):
            results = [
                tune(
                    model,
                    ranges=item.ranges,
                    history=History(folder / f"{strategy}-{seed}.db"),
                    output=folder / f"{strategy}-{seed}",
                    config=TuneConfig(builds=builds, strategy=strategy, seed=seed),
                )
                for seed in range(seeds)
            ]
            row[strategy] = [result.ratio for result in results]
            row[f"{strategy}_routes"] = [str(result.winner) for result in results]
            row[f"{strategy}_seconds"] = [round(result.seconds, 1) for result in results]
        return row


def best_of_pool(model: Model, item: Network, pool: int, folder: Path) -> tuple[Confirmation | None, list[Measurement]]:
    """Measures random routes one by one and confirms the leading ones."""
    backend = get_backend("onnxruntime")
    space = backend.space(model)
    routes = space.sample(pool, np.random.default_rng(2026))
    with Workbench(model, backend, space, folder, BenchConfig(ranges=item.ranges)) as bench:
        bench.start()
        measured = [bench.measure(route) for route in routes]
        leading = sorted((found for found in measured if found.ok), key=lambda found: found.log_ratio)
        confirmed = [
            Confirmation(
                found.route, tuple(bench.measure(found.route, Purpose.CONFIRM) for _ in range(CONFIRMATIONS))
            )
            for found in leading[:CONFIRMED_OF_POOL]
        ]
    good = [found for found in confirmed if all(one.ok for one in found.measurements)]
    return min(good, key=lambda found: found.ratio, default=None), measured


def show(rows: list[dict[str, Any]]) -> None:
    """Prints the table: ratios to the default route (below 1 is faster), medians over seeds with least and greatest."""
    table = Table(title="Confirmed latency relative to the default route (median over seeds, least to greatest)")
    for title in ("network", "family", "best of pool", "routecast k=8", "random k=8", "regret", "regret random"):
        table.add_column(title)
    for row in rows:
        model, random = (statistics.median(row[name]) for name in ("model", "random"))
        table.add_row(
            row["network"],
            row["family"],
            f"{row['pool_best']:.3f}",
            f"{model:.3f} ({min(row['model']):.3f} to {max(row['model']):.3f})",
            f"{random:.3f} ({min(row['random']):.3f} to {max(row['random']):.3f})",
            f"{model / row['pool_best'] - 1:+.1%}",
            f"{random / row['pool_best'] - 1:+.1%}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
