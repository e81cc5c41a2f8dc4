"""What each setting of a knob was worth, estimated from routes that change several knobs at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from routecast.datasets.measurement import Measurement

Array = npt.NDArray[np.float64]

# Standard deviation of a setting's effect on ln(ratio) before anything is measured: most settings are worth a
# few percent, few more than 20 %. It keeps settings that were never told apart from sharing an effect wildly.
PRIOR_STD = 0.15
# The least that an additive model of ln(ratio) leaves unexplained, beside the noise of the timing.
MODEL_STD = 0.02


@dataclass(frozen=True)
class SettingWorth:
    """What one setting did to the latency, all else equal.

    Attributes:
        setting: ``knob=value``.
        ratio: estimated factor on the latency; below 1 is faster.
        ratio_low, ratio_high: its 95 % interval.
        routes: number of measured routes that have it.
    """

    setting: str
    ratio: float
    ratio_low: float
    ratio_high: float
    routes: int

    @property
    def clear(self) -> bool:
        """Whether the interval excludes no effect."""
        return not self.ratio_low <= 1 <= self.ratio_high


def setting_worth(measurements: Sequence[Measurement]) -> list[SettingWorth]:
    """Estimates each setting's factor on the latency, the greatest gain first.

    ln(ratio) is taken as a sum of one effect per setting, with normal prior N(0, 0.15^2); the estimates are
    the posterior of that Bayesian linear regression (Bishop, Pattern Recognition and Machine Learning, sec.
    3.3). The noise of a row is that of its timing plus what the additive model does not explain, which is
    estimated from the residuals: over several models it is mostly how differently they respond.
    """
    rows = [row for row in measurements if row.ok and row.ratio and not row.route.is_default]
    settings = sorted({setting for row in rows for setting in row.route.items()})
    if not settings:
        return []
    column = {setting: index for index, setting in enumerate(settings)}
    design = np.zeros((len(rows), len(settings)))
    for index, row in enumerate(rows):
        design[index, [column[setting] for setting in row.route.items()]] = 1
    mean, deviation = _fit(design, np.array([row.log_ratio for row in rows]), np.array([_noise(row) for row in rows]))
    counts = design.sum(axis=0).astype(int)
    worth = [
        SettingWorth(
            f"{name}={value}",
            math.exp(mean[index]),
            math.exp(mean[index] - 1.96 * deviation[index]),
            math.exp(mean[index] + 1.96 * deviation[index]),
            int(counts[index]),
        )
        for index, (name, value) in enumerate(settings)
    ]
    return sorted(worth, key=lambda item: item.ratio)


def _fit(design: Array, target: Array, noise: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of the effects; the unexplained variance is found by iteration."""
    unexplained = MODEL_STD
    for _ in range(10):
        weighted = design / (noise**2 + unexplained**2)[:, None]
        covariance = np.linalg.inv(design.T @ weighted + np.eye(design.shape[1]) / PRIOR_STD**2)
        mean = covariance @ (weighted.T @ target)
        freedom = len(target) - float(np.trace(covariance @ design.T @ weighted))
        if freedom < 1:
            break
        unexplained = max(MODEL_STD, math.sqrt(float(np.sum((target - design @ mean) ** 2)) / freedom))
    return mean, np.sqrt(np.diag(covariance))


def _noise(row: Measurement) -> float:
    """Standard deviation of ln(ratio) by its 95 % interval, 0 without one."""
    if not (row.ratio_low and row.ratio_high):
        return 0.0
    return math.log(row.ratio_high / row.ratio_low) / (2 * 1.96)
