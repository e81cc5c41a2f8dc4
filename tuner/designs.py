"""Which routes a collection measures of a network."""

from __future__ import annotations

import numpy as np

from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.search.screening import USUAL

SINGLE_CHANGES = 0.4
CHANGES = (2, 5)
# Where half precision is offered nearly every user takes it, so most routes are measured on top of it.
USUAL_SHARE = 0.75


def plan(space: RouteSpace, count: int, seed: int) -> list[Route]:
    """Chooses the routes to measure: two fifths change one knob, the others two to five.

    The knobs to change are drawn group by group (see ``_changed``). Where the space offers fp16, that route is among
    them, and three quarters of the others are changes of it, since that is where people start from. The order is
    random, so that a collection cut short still holds every kind.
    """
    rng = np.random.default_rng(seed)
    start = USUAL if space.offers(USUAL) else Route()
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


def _changed(space: RouteSpace, route: Route, rng: np.random.Generator) -> Route:
    """The route with one more knob changed, the same route when none is left.

    First a group is drawn, in proportion to the logarithm of the number of changes it offers: a hundred compiler knobs
    must not crowd out a few kinds of precision, nor a single switch be in every second route. Then a knob of the group
    and a value, uniformly.
    """
    groups: dict[str, dict[str, list[Route]]] = {}
    for (name, _), other in space.additions(route).items():
        groups.setdefault(space.by_name[name].group, {}).setdefault(name, []).append(other)
    if not groups:
        return route
    weights = np.log2([1 + sum(map(len, knobs.values())) for knobs in groups.values()])
    knobs = list(groups.values())[rng.choice(len(groups), p=weights / weights.sum())]
    values = list(knobs.values())[rng.integers(len(knobs))]
    return values[rng.integers(len(values))]
