"""One knob at a time, as trtexec's ``--tuningSearch=fast``."""

from __future__ import annotations

from collections.abc import Iterator

from routecast.datasets.route import Route
from routecast.tuner.search.base import Strategy


class FastSearch(Strategy):
    """The default route with one knob changed, for each knob and value in the order of the route space."""

    name = "fast"

    def _propose(self, count: int) -> Iterator[Route]:
        del count
        yield from self.space.single_changes()
