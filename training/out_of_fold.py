"""Predictions of every measured route by a member that never saw its family, and what they show."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from routecast.costmodel.base import Array
from routecast.costmodel.features import Integers
from routecast.datasets.route import Route
from routecast.training import metrics

Mask = npt.NDArray[np.bool_]

TRIED = 8
"""Builds that regret and recall are reported for."""
_CLEAR = 0.02


@dataclass(frozen=True)
class RouteRows:
    """R routes of held-out models; arrays have shape (R,), NaN where it was not measured.

    Attributes:
        fingerprint, environment, model, family: what each row was measured on.
        routes: the routes, none of them a default route.
        member: the member that predicted the row.
        log_ratio, noise: measured ln(latency / default latency) and its standard deviation.
        predicted: the prediction of ``log_ratio``.
        low, high: its interval, calibrated without the row's fold.
        failed: measured share of failures.
        failure: predicted probability of failure.
        log_loss, predicted_loss: accuracy loss (``repeats.log_loss``), measured and predicted.
        log_build, predicted_build: ln of build seconds, measured and predicted.
    """

    fingerprint: tuple[str, ...]
    environment: tuple[str, ...]
    model: tuple[str, ...]
    family: tuple[str, ...]
    routes: tuple[Route, ...]
    member: Array
    log_ratio: Array
    noise: Array
    predicted: Array
    low: Array
    high: Array
    failed: Array
    failure: Array
    log_loss: Array
    predicted_loss: Array
    log_build: Array
    predicted_build: Array

    def __len__(self) -> int:
        return len(self.routes)

    @property
    def timed(self) -> Integers:
        """Indices of the rows that were timed."""
        return np.flatnonzero(~np.isnan(self.log_ratio))

    def groups(self) -> list[Integers]:
        """Indices of the timed rows of each model and environment."""
        found: dict[tuple[str, str], list[int]] = {}
        for index in self.timed:
            found.setdefault((self.fingerprint[index], self.environment[index]), []).append(int(index))
        return [np.array(indices) for indices in found.values()]


@dataclass(frozen=True)
class ModelRows:
    """G held-out models, each in one environment; arrays have shape (G,), NaN where it was not measured.

    Attributes:
        fingerprint, environment, model, family: which.
        member: the member that predicted the row.
        log_default, predicted: ln of the default latency in ms, measured and predicted.
        low, high: interval of ``predicted``, calibrated without the row's fold.
        gap, predicted_gap: ln(end-to-end latency / sum of local times).
    """

    fingerprint: tuple[str, ...]
    environment: tuple[str, ...]
    model: tuple[str, ...]
    family: tuple[str, ...]
    member: Array
    log_default: Array
    predicted: Array
    low: Array
    high: Array
    gap: Array
    predicted_gap: Array


Rows = TypeVar("Rows", RouteRows, ModelRows)


@dataclass(frozen=True)
class OutOfFold:
    """All out-of-fold predictions of a training run; empty when no family could be held out."""

    routes: RouteRows
    models: ModelRows

    def only(self, environments: Collection[str]) -> OutOfFold:
        """Those made in some environments."""
        return OutOfFold(_kept(self.routes, environments), _kept(self.models, environments))


def _kept(rows: Rows, environments: Collection[str]) -> Rows:
    kept = [place for place, environment in enumerate(rows.environment) if environment in environments]

    def chosen(values: Any) -> Any:
        return values[kept] if isinstance(values, np.ndarray) else tuple(values[place] for place in kept)

    return type(rows)(**{item.name: chosen(getattr(rows, item.name)) for item in fields(rows)})


def figures(found: OutOfFold, families: Iterable[str] | None = None) -> dict[str, float]:
    """Figures on held-out families, by name; what cannot be told is left out.

    ``spearman``, ``kendall``, ``pairwise_accuracy`` (pairs 2 % apart or more), ``regret_at_8`` and
    ``recall_at_8`` are means over models; ``ratio_mape``, ``ratio_mae_log``, ``coverage`` and
    ``interval_width`` (of the log ratio) are over routes, as ``failure_auc``, ``failure_brier``,
    ``loss_mae_log`` (of the accuracy loss) and ``build_median_ape``; those that start with ``default`` and
    ``gap`` are over models.

    Args:
        found: the predictions.
        families: only these families; None for all.
    """
    wanted = None if families is None else frozenset(families)
    rows, models = found.routes, found.models
    groups = [group for group in rows.groups() if wanted is None or rows.family[group[0]] in wanted]
    kept = np.array([wanted is None or family in wanted for family in rows.family], bool)
    held = np.array([wanted is None or family in wanted for family in models.family], bool)
    result = {**_order(rows, groups), **_size(rows, groups), **_outcome(rows, kept), **_latency(models, held)}
    return {name: value for name, value in result.items() if np.isfinite(value)}


def _order(rows: RouteRows, groups: Sequence[Integers]) -> dict[str, float]:
    def mean(measure: Callable[[Array, Array], float]) -> float:
        values = [measure(rows.log_ratio[group], rows.predicted[group]) for group in groups]
        finite = [value for value in values if np.isfinite(value)]
        return float(np.mean(finite)) if finite else float("nan")

    return {
        "spearman": mean(metrics.spearman),
        "kendall": mean(metrics.kendall),
        "pairwise_accuracy": mean(lambda actual, guess: metrics.pairwise_accuracy(actual, guess, _CLEAR)),
        f"regret_at_{TRIED}": mean(lambda actual, guess: metrics.regret(np.exp(actual), guess, TRIED, default=1.0)),
        f"recall_at_{TRIED}": mean(lambda actual, guess: metrics.top_recall(actual, guess, TRIED)),
    }


def _size(rows: RouteRows, groups: Sequence[Integers]) -> dict[str, float]:
    if not groups:
        return {}
    every = np.concatenate(groups)
    actual, predicted, low, high = (array[every] for array in (rows.log_ratio, rows.predicted, rows.low, rows.high))
    return {
        "ratio_mape": metrics.mape(np.exp(actual), np.exp(predicted)),
        "ratio_mae_log": float(np.mean(np.abs(actual - predicted))),
        "coverage": metrics.coverage(actual, low, high) if np.isfinite(low).all() else float("nan"),
        "interval_width": float(np.mean(high - low)),
    }


def _outcome(rows: RouteRows, kept: Mask) -> dict[str, float]:
    known = kept & ~np.isnan(rows.failed)
    built = kept & ~np.isnan(rows.log_build)
    result = {}
    if known.any():
        result["failure_auc"] = metrics.area_under_curve(rows.failed[known], rows.failure[known])
        result["failure_brier"] = metrics.brier(rows.failed[known], rows.failure[known])
    judged = kept & ~np.isnan(rows.log_loss) & ~np.isnan(rows.predicted_loss)
    if judged.any():
        result["loss_mae_log"] = float(np.mean(np.abs(rows.log_loss[judged] - rows.predicted_loss[judged])))
    if built.any():
        result["build_median_ape"] = metrics.median_ape(
            np.exp(rows.log_build[built]), np.exp(rows.predicted_build[built])
        )
    return result


def _latency(models: ModelRows, held: Mask) -> dict[str, float]:
    known = held & ~np.isnan(models.log_default)
    profiled = held & ~np.isnan(models.gap)
    result = {}
    if known.any():
        actual, predicted = models.log_default[known], models.predicted[known]
        low, high = models.low[known], models.high[known]
        result["default_median_ape"] = metrics.median_ape(np.exp(actual), np.exp(predicted))
        result["default_spearman"] = metrics.spearman(actual, predicted)
        result["default_coverage"] = metrics.coverage(actual, low, high) if np.isfinite(low).all() else float("nan")
    if profiled.any():
        result["gap_mae_log"] = float(np.mean(np.abs(models.gap[profiled] - models.predicted_gap[profiled])))
    return result
