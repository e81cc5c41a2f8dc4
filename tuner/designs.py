"""Which routes a collection measures of a network."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from routecast.datasets.route import Route, RouteSpace

if TYPE_CHECKING:
    from routecast.costmodel.base import ModelView

SINGLE_CHANGES = 0.4
CHANGES = (2, 5)
# Where half precision is offered nearly every user takes it, so most routes are measured on top of it.
USUAL = Route({"precision.policy": "fp16"})
USUAL_SHARE = 0.75
# Knobs that a screen changes at once, and the predicted failure and slowdown (a log ratio) above which a setting is
# left out.
SCREENED = 12
SAFE_FAILURE, SAFE_SLOWDOWN = 0.03, 0.02


def plan(space: RouteSpace, count: int, seed: int) -> list[Route]:
    """Chooses the routes to measure: two fifths change one knob, the others two to five.

    The knobs to change are drawn group by group (see ``_changed``). Where the space offers fp16, that route is among
    them, and three quarters of the others are changes of it, since that is where people start from. The order is
    random, so that a collection cut short still holds every kind.
    """
    rng = np.random.default_rng(seed)
    start = USUAL if _offers(space, USUAL) else Route()
    found = {Route(): None, start: None}
    for goal, (low, high) in ((1 + round(SINGLE_CHANGES * count), (1, 1)), (1 + count, CHANGES)):
        for _ in range(50 * count):
            if len(found) >= goal:
                break
            route = start if rng.random() < USUAL_SHARE else Route()
            for _ in range(int(rng.integers(low, high + 1))):
                route = _changed(space, route, rng)
            found[route] = None
    routes = list(found)[1 : 1 + count]
    rng.shuffle(routes)
    return routes


def _offers(space: RouteSpace, route: Route) -> bool:
    return all(name in space.by_name and value in space.by_name[name].values for name, value in route.items())


def _changed(space: RouteSpace, route: Route, rng: np.random.Generator) -> Route:
    """The route with one more knob changed, the same route when none is left.

    First a group is drawn, in proportion to the logarithm of the number of changes it offers: a hundred compiler knobs
    must not crowd out a few kinds of precision, nor a single switch be in every second route. Then a knob of the group
    and a value, uniformly.
    """
    groups: dict[str, dict[str, list[Route]]] = {}
    for other in space.single_changes(route):
        if route.items() <= other.items():
            (name,) = other.keys() - route.keys()
            groups.setdefault(space.by_name[name].group, {}).setdefault(name, []).append(other)
    if not groups:
        return route
    weights = np.log2([1 + sum(map(len, knobs.values())) for knobs in groups.values()])
    knobs = list(groups.values())[rng.choice(len(groups), p=weights / weights.sum())]
    values = list(knobs.values())[rng.integers(len(knobs))]
    return values[rng.integers(len(values))]


def screens(space: RouteSpace, view: ModelView, count: int, seed: int) -> list[Route]:
    """Routes that change many knobs at once, so that a few of them try nearly all there are.

    Most knobs do nothing to a given network. Changed a dozen at a time, those few that do something are found with a
    tenth of the builds, and told apart by the other networks (group testing: Dorfman, "The detection of defective
    members of large populations", 1943). Settings are dealt out in random order, none twice before all were dealt
    once. Precision stays as it is in the usual route: it does too much for the rest to be seen beside it.

    Args:
        space: where routes come from.
        view: a cost model's view of the network, which says which settings may fail or slow down much.
        count: how many.
        seed: of the order.
    """
    start = USUAL if _offers(space, USUAL) else Route()
    settings = _harmless(space, view, start)
    rng = np.random.default_rng(seed)
    dealt = itertools.chain.from_iterable(rng.permutation(len(settings)) for _ in range(SCREENED * count))
    found: dict[Route, None] = {}
    for _ in range(count if settings else 0):
        hand = dict(settings[place] for place in itertools.islice(dealt, SCREENED))
        found[space.canonical(Route({**start, **hand}))] = None
    return list(found)


def _harmless(space: RouteSpace, view: ModelView, start: Route) -> list[tuple[str, str]]:
    """Settings that may be added to a route and are not thought to take the others of their screen along."""
    changes = [route for route in space.single_changes(start) if start.items() <= route.items()]
    said = view.predict([start, *changes])
    slowdown = said.log_ratio[1:] - said.log_ratio[0]
    harmless = (said.failure[1:] <= SAFE_FAILURE) & (slowdown <= SAFE_SLOWDOWN)
    added = (
        setting
        for route, kept in zip(changes, harmless, strict=True)
        for setting in route.items() - start.items()
        if kept
    )
    return [setting for setting in added if space.by_name[setting[0]].group != "precision"]
