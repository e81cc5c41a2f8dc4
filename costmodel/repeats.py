"""Repeated measurements of one route as one: what training and adaptation both take from a history."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from routecast.datasets.measurement import Measurement
from routecast.datasets.route import Route

_UNKNOWN_NOISE, _LEAST_NOISE = 0.02, 0.003
_INTERVAL_STDS = 2 * 1.96


@dataclass(frozen=True)
class Repeats:
    """All measurements of one route of one model in one environment.

    Attributes:
        route: the route.
        log_ratio: mean of ln(ratio), weighted by precision; None when none was timed.
        noise: standard deviation of ``log_ratio`` from the measured intervals.
        failed: share of the measurements that did not end ok.
        log_build: mean of ln(build seconds); None when none was built.
        measurements: the identities of the measurements.
    """

    route: Route
    log_ratio: float | None
    noise: float
    failed: float
    log_build: float | None
    measurements: tuple[str, ...]


def noise(measurement: Measurement) -> float:
    """Standard deviation of a measured ln(ratio), from its 95 % interval."""
    low, high = measurement.ratio_low, measurement.ratio_high
    if not (low and high):
        return _UNKNOWN_NOISE
    return max(math.log(high / low) / _INTERVAL_STDS, _LEAST_NOISE)


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
    builds = [math.log(measurement.build_seconds) for measurement in found if measurement.build_seconds]
    return Repeats(
        route=route,
        log_ratio=float(precision @ ratios / precision.sum()) if timed else None,
        noise=max(float(precision.sum()) ** -0.5, _LEAST_NOISE) if timed else _UNKNOWN_NOISE,
        failed=sum(not measurement.ok for measurement in found) / len(found),
        log_build=float(np.mean(builds)) if builds else None,
        measurements=tuple(measurement.identity for measurement in found),
    )
