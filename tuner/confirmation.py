"""When a route wins: rebuilt, timed at length, and faster than the default by more than the A/A control's spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from routecast.datasets.measurement import Measurement
from routecast.datasets.route import Route, RouteSpace

if TYPE_CHECKING:
    from routecast.costmodel.base import ModelView

LEAST_GAIN = 0.005
"""Less is no win, however narrow the intervals: two builds of one route differ by so much now and then even on a quiet
device (7 of 109 A/A controls on an H200 were further off)."""

WIDE, CONTROLS = 0.03, 3
"""A control that strays further than this is judged with further ones, as many as these in all."""

# Rebuilding and loading anew moves a latency more than the blocks of one process show, hence several.
CONFIRMATIONS = 3

_MUCH_SLOWER = 0.2
"""Log ratio by which a cost model must expect a route to be slower for it not to be tried: what a setting that matters
brings, and more than a dozen idle ones are credited with."""


@dataclass(frozen=True)
class Confirmation:
    """A route rebuilt and timed at length, several times; without measurements it stands for the default route."""

    route: Route
    measurements: tuple[Measurement, ...]

    @property
    def ratio(self) -> float:
        """The middle one of the ratios, or between the two in the middle: one rebuild may have been disturbed."""
        return median(item.ratio or math.inf for item in self.measurements) if self.measurements else 1.0

    @property
    def low(self) -> float:
        """The least lower bound of the intervals."""
        return min((item.ratio_low or 0.0 for item in self.measurements), default=1.0)

    @property
    def high(self) -> float:
        """The greatest upper bound of the intervals: every rebuild must be faster, not only the middle one."""
        return max((item.ratio_high or math.inf for item in self.measurements), default=1.0)

    def wins(self, margin: float) -> bool:
        """Whether each rebuild is ok and surely faster than the default by more than the A/A control's spread."""
        return all(item.ok for item in self.measurements) and math.log(self.high) < -margin


def control_margin(control: Measurement) -> float:
    """How far from 0 the interval of the A/A control's log ratio reaches, and at least ``LEAST_GAIN``.

    Differences up to this mean nothing.
    """
    return max(LEAST_GAIN, *(abs(math.log(bound or 1.0)) for bound in (control.ratio_low, control.ratio_high)))


def settled_control(measure: Callable[[int], Measurement]) -> Measurement:
    """The A/A control to judge by: the first, or where that strays far, the middle one of three.

    One control may have been disturbed by what never comes again. The middle one is no choice of the best: where the
    machine is noisy, at least one of the others strays as far.

    Args:
        measure: measures the control of this number, from 0.
    """
    first = measure(0)
    if control_margin(first) <= WIDE:
        return first
    return sorted([first, *map(measure, range(1, CONTROLS))], key=control_margin)[CONTROLS // 2]


def shared(space: RouteSpace, view: ModelView, tied: Sequence[Route]) -> Route:
    """What the first of some equally fast routes has in common with the others: most likely what makes it fast.

    A route that is as fast by other means, such as another precision, would leave nothing in common. It is passed over,
    which a cost model that knows the measurements tells.

    Args:
        space: where the routes come from.
        view: the cost model's view, corrected by what was measured.
        tied: the routes, at least one.
    """
    route = tied[0]
    limit = view.predict([route]).log_ratio[0] + _MUCH_SLOWER
    for other in tied[1:]:
        common = space.canonical(Route(route.items() & other.items()))
        if common and view.predict([common]).log_ratio[0] <= limit:
            route = common
    return route


def simplest(winners: Iterable[Confirmation]) -> Confirmation:
    """The winner with the fewest settings among those that are as fast as the fastest, else the default route."""
    order = sorted(winners, key=lambda item: item.ratio)
    tied = [item for item in order if math.log(item.ratio / order[0].ratio) <= LEAST_GAIN]
    return min(tied, key=lambda item: len(item.route), default=Confirmation(Route(), ()))


def verdict(winner: Confirmation, confirmed: Sequence[Confirmation], margin: float) -> str:
    """What came of the tune, in one line."""
    if not winner.route.is_default:
        return (
            f"{1 / winner.ratio:.2f}x the speed of the default route "
            f"(95 % interval {1 / winner.high:.2f}x to {1 / winner.low:.2f}x), confirmed by {CONFIRMATIONS} rebuilds"
        )
    if not confirmed:
        return "keep the default route: no route that is ok was measured faster"
    return (
        f"keep the default route: no leading route was surely faster by more than {margin:.1%} (the A/A "
        f"control's spread, {LEAST_GAIN:.1%} at least) in every rebuild"
    )
