"""Whether a timing was made while the machine was as it usually is."""

from __future__ import annotations

import math

import numpy as np

TOLERANCE = 0.03
"""Log ratio by which the default's latency may differ from its usual one. On an H200 98 % of 1,518 timings were within
1 % of their network's median. The others formed a second mode at 5 to 7 %, within one process always the same one,
with clocks and temperature as ever; a faster route lost up to 11 % in it, so that its ratio to the default was wrong
too."""

SPREADS = 6.0
"""How many median absolute deviations it may differ in any case: where the default itself wanders, nothing is odd."""

ENOUGH = 2
"""Timings after which something can be called usual."""


class UsualLatency:
    """The default route's latency in all timings of one bench so far."""

    def __init__(self) -> None:
        """Knows none yet."""
        self._logs: list[float] = []

    def strays(self, default_ms: float) -> str:
        """Adds the default's latency in one more timing, in ms, and says how far it is off; empty when it is not."""
        value = math.log(default_ms)
        usual = float(np.median(self._logs)) if len(self._logs) >= ENOUGH else value
        spread = float(np.median(np.abs(np.subtract(self._logs, usual)))) if self._logs else 0.0
        self._logs.append(value)
        if abs(value - usual) <= max(TOLERANCE, SPREADS * spread):
            return ""
        return f"the default route took {default_ms:.4g} ms, usually {math.exp(usual):.4g} ms"
