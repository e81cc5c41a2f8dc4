"""What every search strategy offers: ask for routes, tell what they did."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from routecast.datasets.measurement import Measurement, Purpose
from routecast.datasets.route import Route, RouteSpace


class Strategy(ABC):
    """Proposes routes to measure (ask) and learns from what was measured (tell).

    ``ask`` never returns the default route, which is measured beside every other anyway, nor a route that was
    asked or told before. A strategy says which routes it would like next in ``_propose``; the rest is done
    here.

    Attributes:
        space: the routes to choose from.
        candidates: the only routes that may be asked, None for all of the space.
        rng: the only source of randomness, so that a seed fixes what is proposed.
    """

    name: str

    def __init__(self, space: RouteSpace, *, seed: int = 0, candidates: Iterable[Route] | None = None) -> None:
        """Starts with nothing asked and nothing told."""
        self.space = space
        self.candidates = None if candidates is None else tuple(dict.fromkeys(candidates))
        self._allowed = None if self.candidates is None else frozenset(self.candidates)
        self.rng = np.random.default_rng(seed)
        self._told: dict[Route, Measurement] = {}
        self._seen: set[Route] = {Route()}

    def ask(self, count: int) -> list[Route]:
        """Returns up to ``count`` routes to measure next, the most wanted first.

        Fewer come back when the strategy has no more to propose until it is told something, none when it is
        at its end.

        Raises:
            ValueError: ``count`` is negative.
        """
        if count < 0:
            raise ValueError(f"the number of routes asked for must not be negative, got {count}")
        found: list[Route] = []
        if count:
            for route in self._propose(count):
                if not self._is_new(route):
                    continue
                self._seen.add(route)
                found.append(route)
                if len(found) == count:
                    break
        return found

    def tell(self, measurements: Sequence[Measurement]) -> None:
        """Takes what was measured, of routes asked here or elsewhere (a resumed tune).

        The control is ignored. A route measured again replaces its earlier measurement.
        """
        news = [item for item in measurements if item.purpose is not Purpose.CONTROL and item.route]
        for measurement in news:
            self._told[measurement.route] = measurement
            self._seen.add(measurement.route)
        if news:
            self._learn(news)

    @property
    def best(self) -> Measurement | None:
        """The fastest ok measurement told so far, None when there is none."""
        done = [item for item in self._told.values() if item.ok and item.ratio is not None]
        return min(done, key=lambda item: item.log_ratio, default=None)

    @abstractmethod
    def _propose(self, count: int) -> Iterator[Route]:
        """Yields canonical routes, the most wanted first; those seen before are skipped by ``ask``.

        ``ask`` stops reading when it has ``count`` new ones, so the iterator may be longer than that, or
        endless as long as new routes keep coming.
        """

    def _learn(self, measurements: Sequence[Measurement]) -> None:
        """Updates what the strategy knows; ``self._told`` holds the measurements already."""
        del measurements  # most strategies read self._told when they propose

    def _is_new(self, route: Route) -> bool:
        """Whether a route may be asked and was neither asked nor told."""
        return route not in self._seen and self._may_be_asked(route)

    def _may_be_asked(self, route: Route) -> bool:
        return self._allowed is None or route in self._allowed

    def _random(self, count: int) -> list[Route]:
        """Draws ``count`` new random routes; what drawing does not find, a walk over single changes does."""
        if self.candidates is not None:
            new = [route for route in self.candidates if self._is_new(route)]
            return [new[index] for index in self.rng.permutation(len(new))[:count]]
        routes = self.space.sample(count, self.rng, exclude=self._seen)
        if len(routes) < count:
            routes += walk(self.space, count - len(routes), {*self._seen, *routes})
        return routes


def walk(space: RouteSpace, count: int, exclude: set[Route]) -> list[Route]:
    """Finds up to ``count`` routes not excluded: single changes of the default, then of those, and so on.

    It reaches every route of the space, so fewer than ``count`` come back only when no others are left.
    """
    found: list[Route] = []
    reached = {Route()}
    frontier = [Route()]
    while frontier:
        beyond: list[Route] = []
        for base in frontier:
            for route in space.single_changes(base):
                if route in reached:
                    continue
                reached.add(route)
                beyond.append(route)
                if route not in exclude:
                    found.append(route)
                    if len(found) == count:
                        return found
        frontier = beyond
    return found
