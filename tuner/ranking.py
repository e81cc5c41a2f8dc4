"""Ranking routes by prediction alone: nothing is built or run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from routecast.datasets.errors import UsageError
from routecast.datasets.model import open_model
from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.predictions import by_route, need_cost_model
from routecast.tuner.results import RoutePrediction

if TYPE_CHECKING:
    from routecast.costmodel.base import CostModel, ModelView, Predictions
    from routecast.datasets.environment import Environment
    from routecast.datasets.measurement import Measurement
    from routecast.tuner.backends.base import Backend


_FOR_TUNER = 20
"""How many routes a vendor's own tuner is told of."""


@dataclass(frozen=True)
class Ranking:
    """Routes by what trying them promises: predicted latency, and the default route's where they fail.

    Attributes:
        model_name: name of the model.
        cost_model: name of the cost model.
        device: what the predictions are for.
        default_ms, default_ms_low, default_ms_high: expected latency of the default route, with its interval.
        scored: number of routes that were scored.
        routes: the best of them, the most promising first.
        warnings: why the cost model is out of its depth, if it is.
    """

    model_name: str
    cost_model: str
    device: str
    default_ms: float
    default_ms_low: float
    default_ms_high: float
    scored: int
    routes: tuple[RoutePrediction, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form."""
        return {
            **vars(self),
            "routes": [route.to_json() for route in self.routes],
            "warnings": list(self.warnings),
        }


def predict(
    model: str | Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    backend: str = "onnxruntime",
    environment: Environment | None = None,
    routes: Sequence[Route] | None = None,
    cost_model: CostModel | str | Path | None = None,
    any_version: bool = False,
    allow_numerics: bool = True,
    top: int = 10,
    pool: int = 4096,
    seed: int = 0,
) -> Ranking:
    """Ranks routes of a model by what trying them promises, without building or running anything.

    Args:
        model: an ONNX file.
        shapes: by input name, needed for dynamic inputs.
        backend: what would build and run it.
        environment: where; None is this machine with that backend.
        routes: what to rank; None draws a pool from the route space that the backend has for the model here.
        cost_model: a cost model or its folder; None is the champion, or the shipped one without it.
        any_version: whether the cost model may speak of a version of the backend that it never saw.
        allow_numerics: whether knobs that may change results are considered.
        top: how many routes come back.
        pool: how many are drawn: every single change, and random routes.
        seed: of the random routes.

    Raises:
        UsageError: the model or the options cannot be used, no cost model is at hand, or it never saw this version of
            the backend.
    """
    opened = open_model(model, shapes)
    predictor = need_cost_model(cost_model)
    environment = environment or get_backend(backend).environment()
    if not any_version:
        _refuse(predictor, environment)
    view = predictor.view(opened.graph, environment)
    if routes is None:
        routes = candidate_routes(get_backend(backend).space(opened, allow_numerics=allow_numerics), pool, seed)
    said = view.predict(routes)
    return Ranking(
        model_name=opened.name,
        cost_model=predictor.name,
        device=environment.device,
        default_ms=float(said.default_ms),
        default_ms_low=float(said.default_ms_low),
        default_ms_high=float(said.default_ms_high),
        scored=len(routes),
        routes=tuple(_most_promising_first(said)[:top]),
        warnings=tuple(view.warnings),
    )


def _most_promising_first(said: Predictions) -> list[RoutePrediction]:
    return sorted(by_route(said), key=lambda item: item.promise)


def _refuse(cost_model: CostModel, environment: Environment) -> None:
    if refusal := cost_model.refusal(environment):
        raise UsageError(
            f"the cost model is refused: {refusal}; measure with this version and run `routecast retrain`, "
            "or use it nevertheless with --any-version"
        )


def tuner_routes(space: RouteSpace, base: Route, group: str) -> list[Route]:
    """Every route that sets one more knob of a group than ``base``: what a vendor's own tuner would try first."""
    return [route for route in space.single_changes(base) if _added(route, base).startswith(f"{group}.")]


def text_for_tuner(
    backend: Backend, space: RouteSpace, base: Route, view: ModelView | None, measured: Sequence[Measurement]
) -> str:
    """What the vendor's own tuner reads to go on from a route; empty when there is no such tuner or nothing to try.

    Args:
        backend: whose tuner.
        space: the route space.
        base: the route to go on from; what it sets stays as it is.
        view: ranks what can be set besides, corrected by what was measured; None leaves that to ``measured`` alone.
        measured: routes of the same model.
    """
    if not backend.tuner_knobs:
        return ""
    routes = tuner_routes(space, base, backend.tuner_knobs)
    if view is not None and routes:
        said = (view.adapt(measured) if measured else view).predict(routes)
        ranked = [item.route for item in _most_promising_first(said)]
    else:
        faster = (item for item in measured if item.ok and item.ratio is not None and item.ratio < 1)
        ranked = [item.route for item in sorted(faster, key=lambda item: item.log_ratio)]
    return backend.tuner_file(ranked[:_FOR_TUNER], base)


def _added(route: Route, base: Route) -> str:
    """The one knob that a route sets and ``base`` does not, empty when they differ otherwise."""
    added = route.keys() - base.keys()
    return next(iter(added)) if len(added) == 1 and base.items() <= route.items() else ""


def candidate_routes(space: RouteSpace, count: int, seed: int) -> list[Route]:
    """The default route, every single change, and random routes up to ``count``."""
    singles = space.single_changes()[: count - 1]
    drawn = space.sample(count - 1 - len(singles), np.random.default_rng(seed), exclude=singles)
    return [Route(), *singles, *drawn]
