"""Replays searches on the shipped history: which of the recorded routes would each strategy have built?

Every model of the history is a table of recorded routes. A strategy may build k of them, in four rounds; its regret is
the least latency it found over the least in the table, the default route included. The cost model is the member of the
shipped ensemble that was trained without the model's family. Takes seconds and measures nothing.

    python benchmarks/replay_search.py [--builds 8] [--seeds 5]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import save
from rich.console import Console
from rich.table import Table

from routecast.costmodel import BUILTIN, load_cost_model
from routecast.costmodel.base import ModelView
from routecast.datasets.model import Model
from routecast.datasets.records import builtin_records
from routecast.training.promotion import remembered
from routecast.tuner.backends.onnxruntime.backend import OnnxRuntimeBackend
from routecast.tuner.backends.onnxruntime.knobs import Machine
from routecast.tuner.backends.replay import ReplayTable, best_ratio, replay_search, replay_tables
from routecast.tuner.search import ModelSearch, RandomSearch
from routecast.tuner.search.base import Strategy

BACKEND = "onnxruntime"


def main() -> None:
    """Replays and writes ``results/replay_search.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--builds", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    tables = [table for table in replay_tables(builtin_records()) if table.environment.backend == BACKEND]
    regrets: dict[str, dict[str, list[float]]] = {"routecast": {}, "random": {}}
    members = remembered(BUILTIN).members
    for table in tables:
        view = unseen_view(table, members)
        for seed in range(arguments.seeds):
            for name, strategy in strategies(table, view, arguments.builds, seed).items():
                found = best_ratio(replay_search(strategy, table, arguments.builds))
                regrets[name].setdefault(table.family, []).append(found / table.best - 1)
    rows = {name: summary(found) for name, found in regrets.items()}
    show(rows, len(tables))
    save("replay_search", rows, builds=arguments.builds, seeds=arguments.seeds, models=len(tables))


def unseen_view(table: ReplayTable, members: Mapping[str, int]) -> ModelView:
    """The model as the member sees it that was trained without its family."""
    ensemble = load_cost_model()
    member = ensemble.members[members[table.family]]
    return replace(ensemble, members=[member]).view(table.graph, table.environment)


def strategies(table: ReplayTable, view: ModelView, builds: int, seed: int) -> dict[str, Strategy]:
    """The searches compared; both may build recorded routes only."""
    model = Model(Path(table.model), table.model, table.family, table.graph, (), ())
    space = OnnxRuntimeBackend(Machine(int(table.environment.numbers["cores"]), "x86_64")).space(model)
    return {
        "routecast": ModelSearch(space, seed=seed, view=view, builds=builds, candidates=table.routes),
        "random": RandomSearch(space, seed=seed, candidates=table.routes),
    }


def summary(regrets: Mapping[str, list[float]]) -> dict[str, object]:
    """Figures over all models and seeds, and the mean regret of each family."""
    every = np.concatenate([np.array(found) for found in regrets.values()])
    return {
        "mean": float(every.mean()),
        "median": float(np.median(every)),
        "within_3_percent": float(np.mean(every <= 0.03)),
        "families": {family: float(np.mean(found)) for family, found in sorted(regrets.items())},
    }


def show(rows: Mapping[str, Mapping[str, object]], models: int) -> None:
    """Prints a row per strategy."""
    table = Table("strategy", "mean regret", "median regret", "within 3 % of the best", title=f"{models} models")
    for name, found in rows.items():
        table.add_row(name, *(f"{found[key]:.1%}" for key in ("mean", "median", "within_3_percent")))
    Console().print(table)


if __name__ == "__main__":
    main()
