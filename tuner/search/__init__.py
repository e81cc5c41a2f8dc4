"""Search strategies: what proposes the routes to measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from routecast.costmodel.base import ModelView
from routecast.datasets.errors import UsageError
from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.search.base import Strategy
from routecast.tuner.search.fast import FastSearch
from routecast.tuner.search.mixed import MixedSearch
from routecast.tuner.search.model import ModelSearch, favourites
from routecast.tuner.search.random import RandomSearch
from routecast.tuner.search.tpe import TpeSearch

__all__ = [
    "FastSearch",
    "MixedSearch",
    "ModelSearch",
    "RandomSearch",
    "Strategy",
    "TpeSearch",
    "favourites",
    "make_strategy",
    "strategy_names",
]

# The strategies that need no cost model; ``model`` is made apart because it takes one.
_MODEL_FREE: dict[str, Callable[..., Strategy]] = {
    kind.name: kind for kind in (RandomSearch, FastSearch, MixedSearch, TpeSearch)
}


def strategy_names() -> tuple[str, ...]:
    """The names that ``make_strategy`` takes."""
    return (ModelSearch.name, *_MODEL_FREE)


def make_strategy(
    name: str,
    space: RouteSpace,
    *,
    seed: int = 0,
    view: ModelView | None = None,
    pool: int = 4096,
    builds: int | None = None,
    order: ModelView | None = None,
    candidates: Iterable[Route] | None = None,
) -> Strategy:
    """Makes a strategy by name.

    Args:
        name: one of ``strategy_names()``.
        space: the routes to choose from.
        seed: of everything random.
        view: the cost model's view of the model being tuned; only ``model`` uses it, and scans without one.
        pool: how many candidates ``model`` scores per round.
        builds: how many routes will be asked for in all, when that is known.
        order: what sorts the scan of ``model`` when the view is out of its depth.
        candidates: the only routes that may be asked, such as those of a recorded table; None for all of the
            space.

    Raises:
        UsageError: there is no such strategy.
        MissingPackage: the strategy's optional package is not installed.
    """
    if name == ModelSearch.name:
        return ModelSearch(space, seed=seed, view=view, pool=pool, builds=builds, order=order, candidates=candidates)
    try:
        kind = _MODEL_FREE[name]
    except KeyError:
        raise UsageError(f"no strategy {name!r}: choose one of {', '.join(strategy_names())}") from None
    return kind(space, seed=seed, candidates=candidates)
