"""Intervals that hold what they promise: conformal calibration on predictions of families a member never saw.

This is cross-conformal prediction (Vovk, "Cross-conformal predictors", 2015) with residuals scaled by the size of
the error to expect. Every row y of the history is predicted once, as m, by a member that was trained without its
family. With s(m) = floor + slope |m| fitted to |y - m|, the calibration keeps the quantile q of |y - m| / s(m) at
the nominal level, and its root mean square r. A new prediction m of the ensemble, whose members disagree by the
standard deviation d, gets the interval m - q s to m + q s and the standard deviation r s, where

    s = max(floor + slope |m|, d / r),

so that disagreement beyond the usual error widens both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from statistics import NormalDist
from typing import Any

import numpy as np

from routecast.costmodel.base import Array

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
    """What predictions outside the training folds taught about errors.

    Attributes:
        nominal: share of the truths that intervals are to hold.
        quantile: of the scaled residuals at that level.
        deviation: root mean square of the scaled residuals.
        floor, slope: the error to expect of a prediction m is floor + slope |m|.
    """

    nominal: float
    quantile: float
    deviation: float
    floor: float
    slope: float

    @classmethod
    def fit(cls, predicted: Array, actual: Array, *, nominal: float, scaled: bool) -> Calibration:
        """Calibrates on out-of-fold predictions.

        Args:
            predicted: by a member that did not train on the row, shape (rows,); at least one row.
            actual: the truth, shape (rows,).
            nominal: share of the truths that intervals are to hold.
            scaled: whether errors may grow with the size of the prediction.
        """
        error = np.abs(actual - predicted)
        floor, slope = _scale(np.abs(predicted), error) if scaled else (_floor(error), 0.0)
        residuals = error / (floor + slope * np.abs(predicted))
        level = min(1.0, nominal * (1 + 1 / len(residuals)))
        deviation = max(float(np.sqrt(np.mean(np.square(residuals)))), 1e-3)
        return cls(nominal, max(float(np.quantile(residuals, level)), 1e-3), deviation, floor, slope)

    @classmethod
    def guess(cls, spread: float, *, nominal: float) -> Calibration:
        """Normal errors of standard deviation ``spread``, for when nothing could be held out."""
        return cls(nominal, NormalDist().inv_cdf(0.5 + nominal / 2), 1.0, max(spread, _LEAST_FLOOR), 0.0)

    def bounds(self, predicted: Array, extra: Array | float = 0.0) -> Bounds:
        """Interval and standard deviation of R things.

        Args:
            predicted: by each member, shape (K, R).
            extra: a further standard deviation of what the calibration could not know, shape (R,).
        """
        mean, disagreement = predicted.mean(0), predicted.std(0)
        scale = np.maximum(self.floor + self.slope * np.abs(mean), disagreement / self.deviation)
        std = np.hypot(self.deviation * scale, extra)
        reach = np.hypot(self.quantile * scale, NormalDist().inv_cdf(0.5 + self.nominal / 2) * np.asarray(extra))
        return Bounds(mean, std, mean - reach, mean + reach)

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form, which ``from_json`` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibration:
        """Reads what ``to_json`` wrote."""
        return cls(**data)


@dataclass(frozen=True)
class Calibrations:
    """Those of every quantity that an ensemble predicts.

    Attributes:
        ratio: of log ratios.
        loss: of accuracy losses (``repeats.log_loss``).
        default: of ln(default latency in ms).
    """

    ratio: Calibration
    loss: Calibration
    default: Calibration

    def of(self, name: str) -> Calibration:
        """The calibration of ``log_ratio`` or ``log_loss``."""
        return {"log_ratio": self.ratio, "log_loss": self.loss}[name]

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form, which ``from_json`` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibrations:
        """Reads what ``to_json`` wrote."""
        return cls(**{item.name: Calibration.from_json(data[item.name]) for item in fields(cls)})


def _floor(error: Array) -> float:
    return max(float(np.mean(error)), _LEAST_FLOOR)


def _scale(size: Array, error: Array) -> tuple[float, float]:
    """Least squares of error = floor + slope size, the slope not below 0 and the floor not close to it."""
    slope, floor = np.polyfit(size, error, 1) if np.ptp(size) > 0 else (0.0, 0.0)
    if slope <= 0:
        return _floor(error), 0.0
    if floor < _LEAST_FLOOR:
        slope = np.sum(size * (error - _LEAST_FLOOR)) / np.sum(np.square(size))
    return max(float(floor), _LEAST_FLOOR), max(float(slope), 0.0)


def cross_bounds(predicted: Array, actual: Array, fold: Array, *, nominal: float, scaled: bool) -> tuple[Array, Array]:
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
        if others.any():
            fitted = Calibration.fit(predicted[others], actual[others], nominal=nominal, scaled=scaled)
            bounds = fitted.bounds(predicted[None, held])
            low[held], high[held] = bounds.low, bounds.high
    return low, high
