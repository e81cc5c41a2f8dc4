"""Repeated measurements of one route as one: what training and adaptation both take from a history."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from routecast.datasets.measurement import Measurement, Status
from routecast.datasets.route import Route

METRIC = "cos"
"""The accuracy metric that is learned: it means the same for outputs of any size."""
EXACT = 1e-6
"""Losses up to this are rounding and count as none."""
LOSS_UNIT = 20.0
"""``log_loss`` is learned in this unit, so that it weighs about as much as log ratios."""
_UNKNOWN_NOISE, _LEAST_NOISE = 0.02, 0.003
_INTERVAL_STDS = 2 * 1.96
_WITH_OUTPUTS = (Status.OK, Status.INACCURATE)


@dataclass(frozen=True)
class Repeats:
    """All measurements of one route of one model in one environment.

    Attributes:
        route: the route.
        log_ratio: mean of ln(ratio), weighted by precision; None when none was timed.
        noise: standard deviation of ``log_ratio`` from the measured intervals.
        failed: share of the measurements that did not end ok.
        broken: share of them that gave no outputs at all: built, loaded or ran not, crashed or hung.
        log_loss: mean of ``log_loss`` of the accuracy losses; None when none is known.
        log_build: mean of ln(build seconds); None when none was built.
        measurements: the identities of the measurements.
    """

    route: Route
    log_ratio: float | None
    noise: float
    failed: float
    broken: float
    log_loss: float | None
    log_build: float | None
    measurements: tuple[str, ...]


def noise(measurement: Measurement) -> float:
    """Standard deviation of a measured ln(ratio), from its 95 % interval."""
    low, high = measurement.ratio_low, measurement.ratio_high
    if not (low and high):
        return _UNKNOWN_NOISE
    return max(math.log(high / low) / _INTERVAL_STDS, _LEAST_NOISE)


def log_loss(loss: float) -> float:
    """Ln of an accuracy loss in units of ``EXACT``: 0 for an exact result, ln(1 / EXACT) for 1 and above, or NaN."""
    return math.log(min(max(loss, EXACT), 1.0) / EXACT) if math.isfinite(loss) else -math.log(EXACT)


def combine(measurements: Iterable[Measurement]) -> list[Repeats]:
    """Combines the measurements of one model in one environment by route, in the order of their first one."""
    by_route: dict[Route, list[Measurement]] = {}
    for measurement in measurements:
        by_route.setdefault(measurement.route, []).append(measurement)
    return [_combined(route, found) for route, found in by_route.items()]


def _combined(route: Route, found: Sequence[Measurement]) -> Repeats:
    timed = [measurement for measurement in found if measurement.ratio]
    precision = np.array([noise(measurement) ** -2 for measurement in timed])
    ratios = np.array([measurement.log_ratio for measurement in timed])
    losses = [log_loss(measurement.accuracy[METRIC]) for measurement in found if METRIC in measurement.accuracy]
    builds = [math.log(measurement.build_seconds) for measurement in found if measurement.build_seconds]
    return Repeats(
        route=route,
        log_ratio=float(precision @ ratios / precision.sum()) if timed else None,
        noise=max(float(precision.sum()) ** -0.5, _LEAST_NOISE) if timed else _UNKNOWN_NOISE,
        failed=sum(not measurement.ok for measurement in found) / len(found),
        broken=sum(measurement.status not in _WITH_OUTPUTS for measurement in found) / len(found),
        log_loss=float(np.mean(losses)) if losses else None,
        log_build=float(np.mean(builds)) if builds else None,
        measurements=tuple(measurement.identity for measurement in found),
    )
