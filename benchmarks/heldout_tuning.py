"""Tunes networks of families that the shipped history does not hold, against random routes.

For each network a pool of 64 random routes is measured one by one, and the leading four are confirmed: the best of
them is what exhaustive measuring of the pool finds. Random search with k = 8 builds is 8 routes drawn from the pool, of
which the leading two are confirmed; routecast gets k = 8 builds and confirms its leading two. Each runs once per seed,
and all follow the same rule: a route that is not surely faster than the default in every rebuild counts as the default.

    python benchmarks/heldout_tuning.py [NETWORK...] [--seeds 5] [--pool 64] [--builds 8]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import load, save
from rich.console import Console
from rich.table import Table

from routecast.datasets.history import History
from routecast.datasets.measurement import Measurement, Purpose
from routecast.datasets.model import Model, open_model
from routecast.datasets.route import Route
from routecast.datasets.zoo import Network, network, networks
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.confirmation import CONFIRMATIONS, Confirmation, control_margin, settled_control
from routecast.tuner.measure.workbench import BenchConfig, Workbench
from routecast.tuner.results import TuneResult
from routecast.tuner.tuning import CONFIRMED_ROUTES, TuneConfig, tune

CONFIRMED_OF_POOL = 4


def main() -> None:
    """Runs the comparison and writes ``results/heldout_tuning.json`` after each network."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("networks", nargs="*", help="names in the zoo; default: one of each held-out family")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pool", type=int, default=64)
    parser.add_argument("--builds", type=int, default=8)
    parser.add_argument("--add", action="store_true", help="keep the networks that the result file holds already")
    arguments = parser.parse_args()
    chosen = [network(name) for name in arguments.networks] or one_of_each_family()
    names = {item.name for item in chosen}
    rows = [row for row in load("heldout_tuning") if row["network"] not in names] if arguments.add else []
    for item in chosen:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(compare(item, arguments.seeds, arguments.pool, arguments.builds, Path(folder)))
        show(rows)
        save("heldout_tuning", rows, seeds=arguments.seeds, pool=arguments.pool, builds=arguments.builds)


def one_of_each_family() -> list[Network]:
    """The first network of each held-out family."""
    first: dict[str, Network] = {}
    for item in networks():
        if item.held_out:
            first.setdefault(item.family, item)
    return list(first.values())


def compare(item: Network, seeds: int, pool: int, builds: int, folder: Path) -> dict[str, Any]:
    """All figures of one network: ratios to the default route, below 1 is faster."""
    model = open_model(item.make(folder), item.shapes, name=item.name, family=item.family)
    row: dict[str, Any] = {"network": item.name, "family": item.family}
    with Pool(model, item, pool, folder / "pool") as measured:
        row |= {
            "default_ms": measured.control.default_ms,
            "control": [measured.control.ratio_low, measured.control.ratio_high],
            "pool_ok": sum(found.ok for found in measured.explored),
            "pool_ratios": [found.ratio for found in measured.explored if found.ok],
            "pool_best": measured.search(measured.explored, CONFIRMED_OF_POOL),
            "random": [
                measured.search(measured.draw(builds, seed), CONFIRMED_ROUTES)["ratio"] for seed in range(seeds)
            ],
        }
    results = [
        tune(
            model,
            ranges=item.ranges,
            history=History(folder / f"{seed}.db"),
            output=folder / f"seed-{seed}",
            config=TuneConfig(builds=builds, seed=seed),
        )
        for seed in range(seeds)
    ]
    return row | {
        "routecast": [result.ratio for result in results],
        "routecast_routes": [str(result.winner) for result in results],
        "routecast_tried": [tried(result) for result in results],
        "routecast_seconds": [round(result.seconds, 1) for result in results],
        "warnings": sorted({warning for result in results for warning in result.warnings}),
    }


def tried(result: TuneResult) -> list[dict[str, Any]]:
    """What a tune built and measured, in order."""
    return [
        {"route": str(found.route), "purpose": found.purpose.value, "status": found.status.value, "ratio": found.ratio}
        for found in result.measurements
    ]


class Pool:
    """Random routes of one model, all measured; leading ones are confirmed on demand, each once."""

    def __init__(self, model: Model, item: Network, size: int, folder: Path) -> None:
        """Measures the control and the pool."""
        backend = get_backend("onnxruntime")
        space = backend.space(model)
        self._bench = Workbench(model, backend, space, folder, BenchConfig(ranges=item.ranges))
        self._bench.start()
        self._confirmed: dict[Route, Confirmation] = {}
        self.control = settled_control(lambda _: self._bench.measure(Route(), Purpose.CONTROL))
        self.explored = [self._bench.measure(route) for route in space.sample(size, np.random.default_rng(2026))]

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self._bench.__exit__(None, None, None)

    def draw(self, count: int, seed: int) -> list[Measurement]:
        """Some routes of the pool at random."""
        chosen = np.random.default_rng(seed).choice(len(self.explored), count, replace=False)
        return [self.explored[int(index)] for index in chosen]

    def search(self, explored: Sequence[Measurement], confirmed: int) -> dict[str, Any]:
        """What a search that explored these routes ends with: the default route unless a leading one wins."""
        leading = sorted((found for found in explored if found.ok), key=lambda found: found.log_ratio)[:confirmed]
        margin = control_margin(self.control)
        winners = [found for found in map(self._confirm, leading) if found.wins(margin)]
        best = min(winners, key=lambda found: found.ratio, default=Confirmation(Route(), ()))
        return {"route": str(best.route), "ratio": best.ratio, "low": best.low, "high": best.high}

    def _confirm(self, found: Measurement) -> Confirmation:
        if found.route not in self._confirmed:
            rebuilt = tuple(self._bench.measure(found.route, Purpose.CONFIRM) for _ in range(CONFIRMATIONS))
            self._confirmed[found.route] = Confirmation(found.route, rebuilt)
        return self._confirmed[found.route]


def show(rows: list[dict[str, Any]]) -> None:
    """Prints the table: median over seeds, with least and greatest."""
    table = Table(title="Confirmed latency relative to the default route: median over seeds (least to greatest)")
    for title in ("network", "family", "best of pool", "routecast", "random", "routecast's regret", "random's regret"):
        table.add_column(title)
    for row in rows:
        best = row["pool_best"]["ratio"]
        medians = [statistics.median(row[name]) for name in ("routecast", "random")]
        spreads = [f"{min(row[name]):.3f} to {max(row[name]):.3f}" for name in ("routecast", "random")]
        table.add_row(
            row["network"],
            row["family"],
            f"{best:.3f}",
            *(f"{median:.3f} ({spread})" for median, spread in zip(medians, spreads, strict=True)),
            *(f"{median / best - 1:+.1%}" for median in medians),
        )
    Console().print(table)


if __name__ == "__main__":
    main()
