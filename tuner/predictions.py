"""Predictions at hand: which cost model speaks, and what it says route by route."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from routecast.costmodel.base import CostModel
from routecast.datasets.errors import UsageError
from routecast.tuner.results import RoutePrediction

if TYPE_CHECKING:
    from routecast.costmodel.base import Predictions


def need_cost_model(given: CostModel | str | Path | None) -> CostModel:
    """The cost model given or read from a folder; None is the champion, or the shipped one without it.

    Raises:
        UsageError: there is none.
    """
    if isinstance(given, CostModel):
        return given
    from routecast.training import find_cost_model

    found = find_cost_model(given)
    if found is None:
        raise UsageError("no cost model is at hand: make one with `routecast train`, or name one's folder")
    return found


def held_out_members(given: str | Path | None) -> Mapping[str, int]:
    """By family, the index of the member trained without it in the ensemble of ``find_cost_model(given)``."""
    from routecast.costmodel import BUILTIN
    from routecast.training import load_champion
    from routecast.training.promotion import remembered

    return remembered(Path(given or load_champion() or BUILTIN)).members


def by_route(predictions: Predictions) -> list[RoutePrediction]:
    """The predictions of a batch, one by one."""
    return [
        RoutePrediction(
            route=route,
            ratio=float(predictions.ratio[index]),
            ratio_low=float(predictions.ratio_low[index]),
            ratio_high=float(predictions.ratio_high[index]),
            latency_ms=float(predictions.latency_ms[index]),
            failure=float(predictions.failure[index]),
        )
        for index, route in enumerate(predictions.routes)
    ]
