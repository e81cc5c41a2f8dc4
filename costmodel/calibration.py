"""Intervals that hold what they promise: conformal calibration on predictions of families a member never saw.

This is the CV+ method (Barber et al., "Predictive inference with the jackknife+", 2021) with residuals scaled by the
size of the prediction. Member k of the ensemble predicts m_k and was trained without the rows of its fold; their
residuals |y - m_k| / s(m_k), with s(m) = floor + slope |m|, are kept as quantiles q_k. For a new route, the interval
runs from the alpha quantile of all m_k - q_k s(m_k) to the 1 - alpha quantile of all m_k + q_k s(m_k). Members that
disagree thus widen it, by as much as their disagreement was worth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from routecast.costmodel.base import Array

GRID = 24
_LEAST_FLOOR = 0.005


@dataclass(frozen=True)
class Bounds:
    """Predictions of R things in natural logarithms, each of shape (R,).

    Attributes:
        mean: of the members.
        std: standard deviation of the error to expect.
        low, high: the calibrated interval.
    """

    mean: Array
    std: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class Calibration:
    """Residuals of predictions outside the training folds, of K members.

    Attributes:
        nominal: share of the truths that intervals are to hold.
        quantiles: of the scaled residuals of each member, ascending, K times GRID.
        floor, slope: the scale of a prediction m is floor + slope |m|.
    """

    nominal: float
    quantiles: tuple[tuple[float, ...], ...]
    floor: float
    slope: float

    @classmethod
    def fit(
        cls, predicted: Array, actual: Array, member: Sequence[int] | Array, members: int, *, nominal: float, scaled: bool
    ) -> Calibration:
        """Calibrates on out-of-fold predictions.

        Args:
            predicted: by a member that did not train on the row, shape (rows,).
            actual: the truth, shape (rows,).
            member: which member predicted each row, shape (rows,).
            members: the number of members K; those that predicted no row get the residuals of all.
            nominal: share of the truths that intervals are to hold.
            scaled: whether errors may grow with the size of the prediction.
        """
        error, owner = np.abs(actual - predicted), np.asarray(member)
        floor, slope = _scale(np.abs(predicted), error) if scaled else (max(float(np.mean(error)), _LEAST_FLOOR), 0.0)
        residuals = error / (floor + slope * np.abs(predicted))
        levels = (np.arange(GRID) + 0.5) / GRID
        rows = [residuals[owner == index] for index in range(members)]
        grids = [np.quantile(found if len(found) else residuals, levels) for found in rows]
        return cls(nominal, tuple(tuple(map(float, grid)) for grid in grids), floor, slope)

    @classmethod
    def guess(cls, members: int, spread: float, *, nominal: float) -> Calibration:
        """Half-normal residuals of standard deviation ``spread``, for when nothing could be held out."""
        levels = (np.arange(GRID) + 0.5) / GRID
        grid = tuple(float(value) for value in np.quantile(np.abs(np.random.default_rng(0).normal(size=4096)), levels))
        return cls(nominal, (grid,) * members, max(spread, _LEAST_FLOOR), 0.0)

    def scale(self, predicted: Array) -> Array:
        """Size of the error to expect of a prediction, same shape."""
        return self.floor + self.slope * np.abs(predicted)

    def bounds(self, predicted: Array, extra: Array | float = 0.0) -> Bounds:
        """Interval and standard deviation of R things.

        Args:
            predicted: by each member, shape (K, R).
            extra: a further standard deviation of what the calibration could not know, shape (R,).
        """
        grid = np.array(self.quantiles)
        scale = self.scale(predicted)
        reach = (grid[:, :, None] * scale[:, None, :]).reshape(-1, predicted.shape[1])
        centre = np.repeat(predicted, grid.shape[1], axis=0)
        mean = predicted.mean(0)
        low, high = _quantile(centre - reach, 1 - self.nominal), _quantile(centre + reach, self.nominal)
        variance = predicted.var(0) + np.mean(np.square(grid).mean(1)[:, None] * np.square(scale), axis=0)
        margin = np.square(_Z90 * np.asarray(extra))
        return Bounds(
            mean=mean,
            std=np.sqrt(variance + np.square(extra)),
            low=mean - np.sqrt(np.square(np.maximum(mean - low, 0)) + margin),
            high=mean + np.sqrt(np.square(np.maximum(high - mean, 0)) + margin),
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form, which ``from_json`` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibration:
        """Reads what ``to_json`` wrote."""
        return cls(data["nominal"], tuple(tuple(grid) for grid in data["quantiles"]), data["floor"], data["slope"])


_Z90 = 1.645


def _scale(size: Array, error: Array) -> tuple[float, float]:
    """Least squares of error = floor + slope size, with neither below 0 nor the floor close to it."""
    slope, floor = np.polyfit(size, error, 1) if np.ptp(size) > 0 else (0.0, float(np.mean(error)))
    if slope <= 0:
        return max(float(np.mean(error)), _LEAST_FLOOR), 0.0
    if floor < _LEAST_FLOOR:
        slope = max(0.0, float(np.sum(size * (error - _LEAST_FLOOR)) / np.sum(np.square(size))))
    return max(float(floor), _LEAST_FLOOR), float(slope)


def _quantile(values: Array, level: float) -> Array:
    """The quantile over the first axis, rounded away from the middle, shape (R,)."""
    last = len(values) - 1
    index = int(np.ceil(level * last)) if level > 0.5 else int(np.floor(level * last))
    return np.partition(values, index, axis=0)[index]


def cross_bounds(
    predicted: Array, actual: Array, fold: Array, nominal: float, *, scaled: bool
) -> tuple[Array, Array]:
    """Intervals of out-of-fold predictions, each calibrated without the row's own fold.

    Their coverage is the honest estimate for a new family: neither the member nor the residuals knew the row's.

    Args:
        predicted: by a member that did not train on the row, shape (rows,).
        actual: the truth, NaN where it is unknown, shape (rows,).
        fold: which fold each row is of, shape (rows,).
        nominal: share of the truths that intervals are to hold.
        scaled: whether errors may grow with the size of the prediction.

    Returns:
        Low and high ends, NaN when no other fold has a truth to calibrate on; both of shape (rows,).
    """
    low, high = np.full(len(predicted), np.nan), np.full(len(predicted), np.nan)
    for index in np.unique(fold):
        held = fold == index
        others = ~held & ~np.isnan(actual)
        if not others.any():
            continue
        calibration = Calibration.fit(
            predicted[others], actual[others], np.zeros(int(others.sum())), 1, nominal=nominal, scaled=scaled
        )
        bounds = calibration.bounds(predicted[None, held])
        low[held], high[held] = bounds.low, bounds.high
    return low, high
