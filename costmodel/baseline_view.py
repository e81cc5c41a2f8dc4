"""One model on one device as a baseline sees it, corrected by what was measured of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from routecast.costmodel.adaptation import Evidence, correct_failures, posterior, token_failures
from routecast.costmodel.base import Array, ModelView, Predictions
from routecast.costmodel.features import Token, roofline_ms
from routecast.costmodel.repeats import Repeats, combine
from routecast.datasets.environment import Environment
from routecast.datasets.graph import Graph
from routecast.datasets.measurement import Measurement
from routecast.datasets.route import Route


class ErrorSize(Protocol):
    """How large errors are, in natural logarithms: standard deviation, and half the width of an interval."""

    @property
    def std(self) -> float:
        """Root mean square."""

    @property
    def reach(self) -> float:
        """What the nominal share of the errors stays below."""


class Estimator(Protocol):
    """What a view asks of a baseline (see ``Baseline``)."""

    @property
    def backends(self) -> frozenset[str]:
        """Backends that were measured."""

    @property
    def build_seconds(self) -> float:
        """Expected build time."""

    @property
    def gap(self) -> float:
        """Expected gap."""

    @property
    def route_errors(self) -> ErrorSize:
        """Of log ratios."""

    @property
    def default_errors(self) -> ErrorSize:
        """Of ln(default latency)."""

    def log_ratio(self, graph: Graph, environment: Environment, routes: Sequence[Route]) -> Array:
        """Log ratios, shape (R,)."""

    def log_default(self, graph: Graph, environment: Environment) -> float:
        """Ln of the default latency in ms."""

    def failure(self, graph: Graph, environment: Environment, routes: Sequence[Route]) -> Array:
        """Failure probabilities, shape (R,)."""


class BaselineView(ModelView):
    """Scores routes of one graph with a baseline; see ``adaptation`` for how measurements correct it."""

    def __init__(
        self, model: Estimator, graph: Graph, environment: Environment, measured: tuple[Measurement, ...] = ()
    ) -> None:
        """Takes a fitted baseline, and what was measured of this very model."""
        self._model = model
        self._graph = graph
        self._environment = environment
        self._measured = measured

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the cost model is out of its depth here, one line each; empty when it is not."""
        if self._environment.backend in self._model.backends:
            return ()
        known = ", ".join(sorted(self._model.backends))
        return (f"backend {self._environment.backend} was never measured (only {known})",)

    def adapt(self, measurements: Sequence[Measurement]) -> BaselineView:
        """A view corrected by these measurements and by those it already had; each counts once."""
        known = {item.identity: item for item in (*self._measured, *measurements)}
        return BaselineView(self._model, self._graph, self._environment, tuple(known.values()))

    def predict(self, routes: Sequence[Route]) -> Predictions:
        """Scores R routes in one batch."""
        changed = np.array([not route.is_default for route in routes], np.float64)
        mean = self._log_ratio(routes)
        std = self._model.route_errors.std * changed
        if self._evidence is not None:
            shift, std = posterior(self._evidence, routes, std, self._token_variance * _lengths(routes))
            mean = mean + shift
        reach = std * (self._model.route_errors.reach / self._model.route_errors.std)
        default, default_low, default_high = self._default_ms
        times = roofline_ms(self._graph, self._environment)
        return Predictions(
            routes=tuple(routes),
            log_ratio=mean,
            log_ratio_std=std,
            ratio_low=np.exp(mean - reach),
            ratio_high=np.exp(mean + reach),
            failure=self._failure(routes) * changed,
            loss=np.full(len(routes), np.nan),
            build_seconds=np.full(len(routes), self._model.build_seconds),
            default_ms=default,
            default_ms_low=default_low,
            default_ms_high=default_high,
            local_ms=times * (default / np.exp(self._model.gap) / times.sum()),
            gap=self._model.gap,
        )

    def _log_ratio(self, routes: Sequence[Route]) -> Array:
        """Before any correction; 0 for the default route."""
        said = self._model.log_ratio(self._graph, self._environment, routes)
        return np.where(_lengths(routes) > 0, said, 0.0)

    def _failure(self, routes: Sequence[Route]) -> Array:
        failure = self._model.failure(self._graph, self._environment, routes)
        return correct_failures(failure, routes, *self._failures) if self._failures else failure

    @property
    def _token_variance(self) -> float:
        """The same for every setting: a baseline does not know which are uncertain."""
        return self._model.route_errors.std**2

    @cached_property
    def _repeats(self) -> list[Repeats]:
        return combine(item for item in self._measured if item.route)

    @cached_property
    def _evidence(self) -> Evidence | None:
        timed = [item for item in self._repeats if item.log_ratio is not None]
        if not timed:
            return None
        routes = tuple(item.route for item in timed)
        return Evidence(
            routes=routes,
            error=np.array([item.log_ratio for item in timed], np.float64) - self._log_ratio(routes),
            noise=np.array([item.noise for item in timed]),
            std=np.full(len(routes), self._model.route_errors.std),
            variance=dict.fromkeys(_tokens(routes), self._token_variance),
        )

    @cached_property
    def _failures(self) -> tuple[dict[Token, float], dict[Token, float]] | None:
        """Failure probability of each measured setting alone, as predicted and as corrected."""
        if not self._repeats:
            return None
        tokens = _tokens([item.route for item in self._repeats])
        alone = self._model.failure(self._graph, self._environment, [Route([token]) for token in tokens])
        prior = dict(zip(tokens, map(float, np.clip(alone, 0.005, 0.95)), strict=True))
        return prior, token_failures([(item.route, item.failed >= 0.5) for item in self._repeats], prior)

    @cached_property
    def _default_ms(self) -> tuple[float, float, float]:
        """Default latency with its interval, as measured where it was, else as predicted."""
        measured = [item.default_ms for item in self._measured if item.default_ms]
        if measured:
            return float(np.exp(np.mean(np.log(measured)))), min(measured), max(measured)
        centre = self._model.log_default(self._graph, self._environment)
        reach = self._model.default_errors.reach
        return float(np.exp(centre)), float(np.exp(centre - reach)), float(np.exp(centre + reach))


def _lengths(routes: Sequence[Route]) -> Array:
    return np.array([len(route) for route in routes], np.float64)


def _tokens(routes: Sequence[Route]) -> list[Token]:
    return list(dict.fromkeys(token for route in routes for token in route.items()))
