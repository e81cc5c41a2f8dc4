"""One knob at a time, then the combinations of those that won, as trtexec's ``--tuningSearch=mixed``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from routecast.datasets.route import Route
from routecast.tuner.search.fast import FastSearch


class MixedSearch(FastSearch):
    """``fast``, then the product over the settings that beat the default route.

    The product begins with every winning knob at its best value and ends with single changes, so that a
    budget that does not cover it is spent on the combinations that promise most if gains add up.
    """

    name = "mixed"

    def _propose(self, count: int) -> Iterator[Route]:
        singles = [route for route in self.space.single_changes() if self._may_be_asked(route)]
        yield from singles
        if all(route in self._told for route in singles):
            yield from self._products()

    def _products(self) -> Iterator[Route]:
        """Combinations of winning settings, the most promising first."""
        winners: dict[str, list[tuple[float, str]]] = {}
        for route, measurement in self._told.items():
            if len(route) == 1 and measurement.ok and measurement.log_ratio < 0:
                ((name, value),) = route.items()
                winners.setdefault(name, []).append((measurement.log_ratio, value))
        ranked = sorted((sorted(gains), name) for name, gains in winners.items())
        names = [name for _, name in ranked]
        choices = [[*(value for _, value in gains), self.space.by_name[name].default] for gains, name in ranked]
        # itertools.product turns its last argument fastest, so the weakest knob is the first to give way.
        for values in itertools.product(*choices):
            yield self.space.canonical(Route(zip(names, values, strict=True)))
