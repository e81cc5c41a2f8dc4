"""The candidates that a cost model scores: drawn at random, evolved around the most promising, then refined."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from routecast.costmodel.base import Array, ModelView, promise
from routecast.datasets.route import Route, RouteSpace

_ELITE = 48
_COMBINED_SINGLES = 16
_GENERATIONS = 3
_REFINED, _REFINEMENTS = 16, 2
# Random routes are a share of the pool; half change few knobs, half change many.
_RANDOM_SHARE = 0.4
_SPREADS = ((1, 3), (2, 6))
# Beyond routes of so many settings a cost model extrapolates, and a search that may go there finds the errors of the
# model instead of fast routes. Where parents are longer, two of them may be united.
_MOST_SETTINGS = 6


@dataclass(frozen=True)
class Scores:
    """What a cost model said of R candidates; each array has shape (R,).

    Attributes:
        routes: the candidates.
        log_ratio: predicted mean of the log ratio to the default route.
        std: its standard deviation.
        failure: probability of not ending ok.
    """

    routes: tuple[Route, ...]
    log_ratio: Array
    std: Array
    failure: Array

    @classmethod
    def of(cls, view: ModelView, routes: Sequence[Route]) -> Scores:
        """Scores routes in one batch."""
        if not routes:
            return cls((), np.zeros(0), np.zeros(0), np.zeros(0))
        said = view.predict(routes)
        return cls(said.routes, said.log_ratio, said.log_ratio_std, said.failure)

    def joined(self, other: Scores) -> Scores:
        """These candidates and then the others."""
        return Scores(
            self.routes + other.routes,
            np.concatenate([self.log_ratio, other.log_ratio]),
            np.concatenate([self.std, other.std]),
            np.concatenate([self.failure, other.failure]),
        )

    def without(self, routes: Collection[Route]) -> Scores:
        """The candidates that are not among ``routes``."""
        keep = np.array([route not in routes for route in self.routes], dtype=bool)
        kept = tuple(route for route in self.routes if route not in routes)
        return Scores(kept, self.log_ratio[keep], self.std[keep], self.failure[keep])

    @property
    def promise(self) -> Array:
        """Optimistic log ratio, gains weighed by the chance to work; lower is better, shape (R,)."""
        return promise(self.log_ratio - self.std, self.failure)

    def leading(self, count: int) -> list[Route]:
        """The ``count`` most promising routes, best first."""
        return [self.routes[index] for index in np.argsort(self.promise, kind="stable")[:count]]


def grow_pool(
    space: RouteSpace, view: ModelView, rng: np.random.Generator, size: int, parents: Sequence[Route] = ()
) -> Scores:
    """Scores about ``size`` distinct routes of a space.

    They are all single changes, combinations of the most promising single changes, random routes, and three
    generations of neighbours, mutations and crossovers of the most promising and of ``parents``.

    Args:
        space: where routes come from.
        view: what scores them, one batch per generation.
        rng: source of randomness.
        size: how many routes at most, single changes not counted.
        parents: routes known to be good, such as the best measured.
    """
    pool = _Pool(view, _most_settings(parents))
    pool.add(space.single_changes())
    pool.add(_combinations(space, pool.scores.leading(_COMBINED_SINGLES)))
    drawn = int(size * _RANDOM_SHARE / len(_SPREADS))
    pool.add([*parents, *(route for spread in _SPREADS for route in space.sample(drawn, rng, spread))])
    brood = max(0, size - len(pool.scores.routes)) // _GENERATIONS
    for _ in range(_GENERATIONS):
        elite = [*dict.fromkeys([*parents, *pool.scores.leading(_ELITE)])]
        near = space.single_changes(elite[0])[: brood // 2] if elite else []
        pool.add([*near, *itertools.islice(_offspring(space, elite, rng), brood - len(near))])
    return pool.scores


def refine(space: RouteSpace, view: ModelView, routes: Sequence[Route], parents: Sequence[Route] = ()) -> Scores:
    """Scores routes by what is known by now, and with them the neighbours of the most promising.

    The neighbours are all of a kind, none by chance: two views that differ by little more than the noise of what was
    measured lead to nearly the same candidates.

    Args:
        space: where routes come from.
        view: what scores them, one batch per generation.
        routes: to begin with.
        parents: routes known to be good, whose neighbours are always looked at.
    """
    pool = _Pool(view, _most_settings(parents))
    pool.add(routes)
    singles = Scores.of(view, space.single_changes()).leading(_COMBINED_SINGLES)
    for _ in range(_REFINEMENTS):
        pool.add(_neighbours(space, [*dict.fromkeys([*parents, *pool.scores.leading(_REFINED)])], singles))
    return pool.scores


def _most_settings(parents: Sequence[Route]) -> int:
    longest = max(map(len, parents), default=0)
    return 2 * longest if longest > _MOST_SETTINGS else _MOST_SETTINGS


class _Pool:
    """Scores that never hold a route twice, nor the default route, nor one of more settings than ``most``."""

    def __init__(self, view: ModelView, most: int) -> None:
        self._view = view
        self._most = most
        self._known = {Route()}
        self.scores = Scores.of(view, ())

    def add(self, routes: Iterable[Route]) -> None:
        """Scores the routes that are new."""
        new = [route for route in dict.fromkeys(routes) if route not in self._known and len(route) <= self._most]
        self._known.update(new)
        self.scores = self.scores.joined(Scores.of(self._view, new))


def _combinations(space: RouteSpace, singles: Sequence[Route]) -> list[Route]:
    """All pairs, and the first two, three and so on together; of two values of one knob the first stays."""
    pairs = [space.canonical(Route({**other, **one})) for one, other in itertools.combinations(singles, 2)]
    piled = itertools.accumulate(singles, lambda pile, route: Route({**route, **pile}))
    return [*pairs, *map(space.canonical, piled)]


def _neighbours(space: RouteSpace, elite: Sequence[Route], singles: Sequence[Route]) -> Iterator[Route]:
    """Every two elite routes united, and each with one of the single changes more or any of its settings less."""
    for one, other in itertools.combinations(elite, 2):
        yield space.canonical(Route({**other, **one}))
    for route in elite:
        yield from (space.canonical(Route({**route, **single})) for single in singles)
        yield from (space.canonical(Route(route.items() - {setting})) for setting in route.items())


def _offspring(space: RouteSpace, elite: Sequence[Route], rng: np.random.Generator) -> Iterator[Route]:
    """Endless children of elite routes: two united, two mixed, or one with a setting changed or dropped."""
    knobs = [knob for knob in space.knobs if knob.alternatives]
    while elite:
        settings = dict(elite[int(rng.integers(len(elite)))])
        kind = rng.random()
        if kind < 0.5:
            other = elite[int(rng.integers(len(elite)))]
            share = 1.0 if kind < 0.25 else 0.5
            settings = {**settings, **{name: value for name, value in other.items() if rng.random() < share}}
        else:
            knob = knobs[int(rng.integers(len(knobs)))]
            settings[knob.name] = knob.values[int(rng.integers(len(knob.values)))]
            if settings and kind > 0.85:
                settings.pop(list(settings)[int(rng.integers(len(settings)))])
        yield space.canonical(Route(settings))
