"""Trains the shipped cost model from the shipped history and prints its figures on held-out families.

Every figure is out of fold: each family is predicted by the member of the ensemble that was trained without it, and
each baseline is fitted without it as well.

    python benchmarks/train_shipped.py [--output FOLDER] [--show]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from common import save
from rich.console import Console
from rich.table import Table

from routecast.costmodel import BUILTIN
from routecast.datasets.records import builtin_records
from routecast.training import train
from routecast.training.evaluation import LEARNED

COLUMNS = {
    "spearman": "rank correlation",
    "feasible_regret_at_1": "regret@1",
    "feasible_regret_at_4": "regret@4",
    "feasible_regret_at_8": "regret@8",
    "coverage": "coverage",
    "latency_mape": "latency error",
    "failure_auc": "failure AUC",
}


def main() -> None:
    """Trains (or, with ``--show``, only reads the shipped figures) and writes ``results/train_shipped.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, help="keep the cost model here")
    parser.add_argument("--show", action="store_true", help="print the figures of the shipped cost model")
    arguments = parser.parse_args()
    if arguments.show:
        show(json.loads((BUILTIN / "evaluation.json").read_text())["backends"])
        return
    torch.set_num_threads(2)
    records = builtin_records()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        outcome = train(records, builtin=False, track=False, output=arguments.output or scratch)
    show(outcome.evaluation.backends)
    save(
        "train_shipped",
        outcome.evaluation.backends,
        measurements=len(records),
        seconds=round(time.perf_counter() - began),
    )


def show(figures: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Prints a table per backend with a row per predictor."""
    for backend in figures[LEARNED]:
        table = Table("predictor", *COLUMNS.values(), title=f"Families held out, {backend}")
        for name, found in figures.items():
            row = found[backend]
            table.add_row(name, *(f"{row[key]:.3f}" if key in row else "" for key in COLUMNS))
        Console().print(table)


if __name__ == "__main__":
    main()
