"""How good predictions are: order, choice, size and intervals. Lower latencies are better throughout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Values = Array | Sequence[float]


def ranks(values: Values) -> Array:
    """Ranks from 1, equal values sharing the mean of theirs, shape (n,)."""
    array = np.asarray(values, np.float64)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: Array = (last - (counts - 1) / 2)[inverse]
    return shared


def spearman(actual: Values, predicted: Values) -> float:
    """Spearman's rank correlation, NaN when either side is constant or holds fewer than two values."""
    if len(actual) < 2 or np.ptp(actual) == 0 or np.ptp(predicted) == 0:
        return float("nan")
    return float(np.corrcoef(ranks(actual), ranks(predicted))[0, 1])


def kendall(actual: Values, predicted: Values) -> float:
    """Kendall's tau-b, NaN when either side is constant or holds fewer than two values."""
    first, second = np.asarray(actual, np.float64), np.asarray(predicted, np.float64)
    upper = np.triu_indices(len(first), 1)
    left = np.sign(first[:, None] - first)[upper]
    right = np.sign(second[:, None] - second)[upper]
    norm = np.sqrt(np.sum(left != 0) * np.sum(right != 0))
    return float(left @ right / norm) if norm else float("nan")


def pairwise_accuracy(actual: Values, predicted: Values, margin: float = 0.0) -> float:
    """Share of pairs ordered rightly among those that differ by more than ``margin``; NaN when none do."""
    first, second = np.asarray(actual, np.float64), np.asarray(predicted, np.float64)
    upper = np.triu_indices(len(first), 1)
    true, guess = (first[:, None] - first)[upper], (second[:, None] - second)[upper]
    clear = np.abs(true) > margin
    right = np.where(guess == 0, 0.5, np.sign(true) == np.sign(guess))
    return float(right[clear].mean()) if clear.any() else float("nan")


def regret(actual: Values, predicted: Values, k: int, default: float | None = None) -> float:
    """Regret@k: best latency among the first k routes by prediction over the best of the pool, minus 1.

    Args:
        actual: latencies, or ratios to the default; NaN or infinity for a route that failed, shape (n,).
        predicted: scores, lowest tried first, shape (n,).
        k: how many routes are tried.
        default: latency of the default route, which is always at hand, when it is to count on both sides.
    """
    latency = np.where(np.isfinite(actual), actual, np.inf)
    chosen = latency[np.argsort(predicted, kind="stable")[:k]]
    fallback = np.inf if default is None else default
    best, found = min(latency.min(initial=np.inf), fallback), min(chosen.min(initial=np.inf), fallback)
    if not np.isfinite(best):
        return float("nan")
    return float(found / best - 1)


def top_recall(actual: Values, predicted: Values, k: int) -> float:
    """Share of the k truly fastest routes among the first k by prediction."""
    k = min(k, len(actual))
    best = np.argsort(np.asarray(actual, np.float64), kind="stable")[:k]
    chosen = np.argsort(np.asarray(predicted, np.float64), kind="stable")[:k]
    return len(set(best) & set(chosen)) / k if k else float("nan")


def mape(actual: Values, predicted: Values) -> float:
    """Mean of |predicted / actual - 1|."""
    return float(np.mean(np.abs(np.asarray(predicted) / np.asarray(actual) - 1)))


def median_ape(actual: Values, predicted: Values) -> float:
    """Median of |predicted / actual - 1|."""
    return float(np.median(np.abs(np.asarray(predicted) / np.asarray(actual) - 1)))


def coverage(actual: Values, low: Values, high: Values) -> float:
    """Share of the truths within [low, high]."""
    truth = np.asarray(actual)
    return float(np.mean((truth >= np.asarray(low)) & (truth <= np.asarray(high))))


def brier(failed: Values, probability: Values) -> float:
    """Mean squared error of a probability."""
    return float(np.mean(np.square(np.asarray(probability) - np.asarray(failed, np.float64))))


def area_under_curve(failed: Values, probability: Values) -> float:
    """Probability that a failed row ranks above one that did not fail; NaN when either kind is absent."""
    truth = np.asarray(failed) >= 0.5
    positive, negative = int(truth.sum()), int((~truth).sum())
    if not (positive and negative):
        return float("nan")
    return float((ranks(probability)[truth].sum() - positive * (positive + 1) / 2) / (positive * negative))
