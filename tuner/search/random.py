"""Random routes: the baseline every other strategy has to beat."""

from __future__ import annotations

from collections.abc import Iterator

from routecast.datasets.route import Route
from routecast.tuner.search.base import Strategy


class RandomSearch(Strategy):
    """Draws routes as ``RouteSpace.sample`` does, and learns nothing from their measurements."""

    name = "random"

    def _propose(self, count: int) -> Iterator[Route]:
        yield from self._random(count)
