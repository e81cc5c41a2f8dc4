"""Screens: routes that change many knobs at once, to find the few that matter to a network.

Most knobs do nothing to a given network. Changed a dozen at a time, those few that do something are found with a tenth
of the builds, and told apart by what is measured afterwards (group testing: Dorfman, "The detection of defective
members of large populations", 1943).
"""

from __future__ import annotations

import numpy as np

from routecast.costmodel.base import ModelView
from routecast.datasets.route import Route, RouteSpace

SCREENED = 12
"""Knobs that a screen changes at once."""
USUAL = Route({"precision.policy": "fp16"})
"""Where people start from, if it is offered."""

Setting = tuple[str, str]

_STARTS = (USUAL, Route({"precision.policy": "bf16"}))
_MAY_FAIL = 0.25
# What a setting may be expected to add to failure and log ratio at most: more might take its whole screen along.
_SAFE_FAILURE, _SAFE_SLOWDOWN = 0.03, 0.02


def screens(space: RouteSpace, view: ModelView, count: int, rng: np.random.Generator | None = None) -> list[Route]:
    """Routes that change ``SCREENED`` knobs each, half of them on top of fp16, half of bf16 where both are offered.

    Precision apart, every setting that is not expected to do harm is dealt out, none twice before all were dealt once:
    precision does too much for others to be seen beside it.

    Args:
        space: where routes come from.
        view: a cost model's view of the network.
        count: how many.
        rng: of the order in which settings are dealt; None for the most promising first, each once.

    Returns:
        The screens; fewer where the settings do not suffice for ``count`` different ones.
    """
    starts = _starts(space, view)
    settings = harmless(space, view, starts[0])
    decks = 1 if rng is None else -(-SCREENED * count // max(len(settings), 1))
    dealt = [settings[place] for _ in range(decks) for place in _order(len(settings), rng)][: SCREENED * count]
    hands: list[dict[str, str]] = [{} for _ in range(count)]
    for place, (name, value) in enumerate(dealt):
        hands[place % count].setdefault(name, value)
    united = (Route({**starts[place % len(starts)], **hand}) for place, hand in enumerate(hands) if hand)
    return list(dict.fromkeys(space.canonical(route) for route in united))


def crossed(space: RouteSpace, view: ModelView, screen: Route) -> Route:
    """A screen on top of the other precision, which is itself where only one is offered.

    Each screen on each precision is a factorial design (Fisher, "The Design of Experiments", 1935): what the precision
    brings and what the settings bring can be told apart.
    """
    starts = _starts(space, view)
    other = next((start for start in starts if not start.items() <= screen.items()), Route())
    return space.canonical(Route({**screen, **other}))


def harmless(space: RouteSpace, view: ModelView, start: Route) -> list[Setting]:
    """Settings, but those of precision, that may be added to a route and are not expected to do harm, best first."""
    added = {
        setting: route
        for setting, route in space.additions(start).items()
        if space.by_name[setting[0]].group != "precision"
    }
    said = view.predict([start, *added.values()])
    slowdown, failure = said.log_ratio[1:] - said.log_ratio[0], said.failure[1:] - said.failure[0]
    safe = (failure <= _SAFE_FAILURE) & (slowdown <= _SAFE_SLOWDOWN)
    settings = list(added)
    return [settings[place] for place in np.argsort(slowdown, kind="stable") if safe[place]]


def half(space: RouteSpace, view: ModelView, route: Route) -> Route:
    """A route without the half of its settings that are worth least: by then most of a screen is known to do nothing.

    Args:
        space: where the route comes from.
        view: a cost model's view of the network, corrected by what was measured.
        route: at least one setting.
    """
    without = [space.canonical(Route(route.items() - {setting})) for setting in route.items()]
    worth = view.predict(without).log_ratio
    best = sorted(zip(route.items(), worth, strict=True), key=lambda item: -item[1])
    return space.canonical(Route(setting for setting, _ in best[: -(-len(route) // 2)]))


def _starts(space: RouteSpace, view: ModelView) -> list[Route]:
    """The reduced precisions that are offered and not expected to fail, else the default route."""
    found = [start for start in _STARTS if space.offers(start) and view.predict([start]).failure[0] <= _MAY_FAIL]
    return found or [Route()]


def _order(count: int, rng: np.random.Generator | None) -> list[int]:
    return list(range(count)) if rng is None else [int(place) for place in rng.permutation(count)]
