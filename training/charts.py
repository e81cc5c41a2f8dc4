"""Figures of an evaluation, as PNG files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from routecast.training.evaluation import Evaluation
from routecast.training.out_of_fold import RouteRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from routecast.training.out_of_fold import OutOfFold


def draw(evaluation: Evaluation, found: OutOfFold, folder: Path) -> list[Path]:
    """Draws predicted against measured ratios, the predictors side by side, and the families side by side.

    Args:
        evaluation: the figures.
        found: predictions of the learned cost model.
        folder: where the files go; it is made.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = {
        "predicted_measured": _predicted_measured(found.routes),
        "predictors": _predictors(evaluation),
        "families": _families(evaluation),
    }
    paths = []
    for name, figure in made.items():
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=110)
    return paths


def _figure(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure outside pyplot, so that neither a display nor global state is touched."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, [figure.add_subplot(1, columns, column + 1) for column in range(columns)]


def _predicted_measured(rows: RouteRows) -> Figure:
    figure, (axes,) = _figure(6, 6)
    timed = rows.timed
    measured, predicted = np.exp(rows.log_ratio[timed]), np.exp(rows.predicted[timed])
    below, above = predicted - np.exp(rows.low[timed]), np.exp(rows.high[timed]) - predicted
    bars = np.nan_to_num(np.clip(np.stack([below, above]), 0, None))
    axes.errorbar(measured, predicted, yerr=bars, fmt="none", alpha=0.08, color="tab:blue", linewidth=1)
    axes.scatter(measured, predicted, s=6, alpha=0.5, color="tab:blue")
    axes.axline((1, 1), slope=1, color="black", linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="measured ratio to the default", ylabel="predicted ratio")
    axes.set_title("Families held out")
    return figure


def _predictors(evaluation: Evaluation) -> Figure:
    shown = {"pairwise_accuracy": "pairs ordered rightly", "feasible_regret_at_8": "regret after 8 builds"}
    figure, panels = _figure(10, 4, len(shown))
    for axes, (name, label) in zip(panels, shown.items(), strict=True):
        values = {predictor: found[name] for predictor, found in evaluation.figures.items() if name in found}
        axes.barh(list(values)[::-1], list(values.values())[::-1])
        axes.set_xlabel(label)
    return figure


def _families(evaluation: Evaluation) -> Figure:
    shown = {"spearman": "rank correlation", "coverage": "coverage of the intervals"}
    learned = next(iter(evaluation.families.values()))
    figure, panels = _figure(10, 1.5 + 0.25 * len(learned), len(shown))
    for axes, (name, label) in zip(panels, shown.items(), strict=True):
        values = {family: found[name] for family, found in learned.items() if name in found}
        axes.barh(list(values)[::-1], list(values.values())[::-1])
        axes.set_xlabel(label)
    return figure
