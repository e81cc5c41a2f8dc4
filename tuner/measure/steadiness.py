"""Whether a timing was made while the machine was as it usually is."""

from __future__ import annotations

import math

import numpy as np

TOLERANCE = 0.03
"""Log ratio by which the default's latency may exceed its usual one. On an H200 98 % of 1,518 timings were within 1 %
of their network's median. Of the others most formed a second mode at 5 to 7 %, with clocks and temperature as ever; a
faster route lost up to 11 % in it, so that its ratio to the default was wrong too. What it adds seems to be the same
for every kernel, 0.2 to 0.3 us: 40 us to ghostnet in batches of 8 and of 32 alike. Its cause is not known."""

SPREADS = 6.0
"""How many median absolute deviations it may do so in any case: where the default itself wanders, nothing is odd."""

ENOUGH = 2
"""Timings after which something can be called usual."""


class UsualLatency:
    """The default route's latency in the timings of one bench so far."""

    def __init__(self) -> None:
        """Knows none yet."""
        self._logs: list[float] = []

    def add(self, default_ms: float) -> None:
        """Takes the default's latency in one more timing, in ms."""
        self._logs.append(math.log(default_ms))

    def exceeded(self, default_ms: float) -> str:
        """Says by what a latency in ms is above the usual one; empty when it is not."""
        if len(self._logs) < ENOUGH:
            return ""
        usual = float(np.median(self._logs))
        spread = float(np.median(np.abs(np.subtract(self._logs, usual))))
        if math.log(default_ms) - usual <= max(TOLERANCE, SPREADS * spread):
            return ""
        return f"the default route took {default_ms:.4g} ms, usually {math.exp(usual):.4g} ms"
