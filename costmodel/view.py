"""One model on one device as an ensemble sees it, corrected by what was measured of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from routecast.costmodel.adaptation import RatioEvidence, correct_failures, correct_ratios, token_failures
from routecast.costmodel.base import Array, ModelView, Predictions
from routecast.costmodel.calibration import Bounds, Calibration
from routecast.costmodel.familiarity import Familiarity
from routecast.costmodel.features import Token
from routecast.costmodel.repeats import Repeats, combine
from routecast.costmodel.scorer import GraphScorer, RouteTokens
from routecast.datasets.measurement import Measurement
from routecast.datasets.route import Route

_LEAST_FAILURE = 0.005


@dataclass(frozen=True)
class DefaultLatency:
    """Latency of the default route in ms, with an interval."""

    ms: float
    low: float
    high: float


class EnsembleView(ModelView):
    """Scores routes of one graph; see ``adaptation`` for how measurements correct it."""

    def __init__(
        self,
        scorer: GraphScorer,
        *,
        ratio: Calibration,
        default: Calibration,
        familiarity: Familiarity,
        warnings: tuple[str, ...],
        measured: tuple[Measurement, ...] = (),
    ) -> None:
        """Takes the encoded graph, the calibrations, and what was measured of this model."""
        self._scorer = scorer
        self._ratio = ratio
        self._default = default
        self._familiarity = familiarity
        self._warnings = warnings
        self._measured = measured

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the cost model is out of its depth here, one line each; empty when it is not."""
        return self._warnings

    def adapt(self, measurements: Sequence[Measurement]) -> EnsembleView:
        """A view corrected by these measurements and by those it already had; each counts once."""
        known = {measurement.identity: measurement for measurement in (*self._measured, *measurements)}
        return EnsembleView(
            self._scorer,
            ratio=self._ratio,
            default=self._default,
            familiarity=self._familiarity,
            warnings=self._warnings,
            measured=tuple(known.values()),
        )

    def predict(self, routes: Sequence[Route]) -> Predictions:
        """Scores R routes in one batch."""
        tokens = self._scorer.route_tokens(routes)
        scores = self._scorer.score(tokens)
        bounds = self._corrected(routes, tokens, self._bounds(tokens, scores.log_ratio))
        failure = np.where(tokens.lengths > 0, scores.failure.mean(0), 0.0)
        if self._failures:
            failure = correct_failures(failure, routes, *self._failures)
        default = self._default_latency
        gap = float(self._scorer.gap.mean())
        local = np.exp(self._scorer.log_local.mean(0))
        return Predictions(
            routes=tuple(routes),
            log_ratio=bounds.mean,
            log_ratio_std=bounds.std,
            ratio_low=np.exp(bounds.low),
            ratio_high=np.exp(bounds.high),
            failure=failure,
            build_seconds=np.exp(scores.log_build.mean(0)),
            default_ms=default.ms,
            default_ms_low=default.low,
            default_ms_high=default.high,
            local_ms=local * (default.ms / np.exp(gap) / local.sum()),
            gap=gap,
        )

    def _bounds(self, tokens: RouteTokens, log_ratio: Array) -> Bounds:
        """Interval before any correction; settings nobody has measured add the history's spread each."""
        unknown = np.array([not self._familiarity.knows(token) for token in self._scorer.tokens], np.float64)
        extra = self._familiarity.spread * np.sqrt(tokens.sums(unknown))
        bounds = self._ratio.bounds(log_ratio, extra)
        changed = (tokens.lengths > 0).astype(np.float64)
        return Bounds(bounds.mean * changed, bounds.std * changed, bounds.low * changed, bounds.high * changed)

    def _corrected(self, routes: Sequence[Route], tokens: RouteTokens, bounds: Bounds) -> Bounds:
        if self._evidence is None:
            return bounds
        variance = np.array(list(self._variance(self._scorer.tokens).values()))
        shift, std = correct_ratios(self._evidence, routes, bounds.std, tokens.sums(variance))
        shrink = np.divide(std, bounds.std, out=np.ones_like(std), where=bounds.std > 0)
        mean = bounds.mean + shift
        return replace(
            bounds,
            mean=mean,
            std=std,
            low=mean - (bounds.mean - bounds.low) * shrink,
            high=mean + (bounds.high - bounds.mean) * shrink,
        )

    @cached_property
    def _repeats(self) -> list[Repeats]:
        """What was measured of routes other than the default."""
        return combine(measurement for measurement in self._measured if measurement.route)

    @cached_property
    def _evidence(self) -> RatioEvidence | None:
        timed = [item for item in self._repeats if item.log_ratio is not None]
        if not timed:
            return None
        routes = tuple(item.route for item in timed)
        tokens = self._scorer.route_tokens(routes)
        bounds = self._bounds(tokens, self._scorer.score(tokens).log_ratio)
        return RatioEvidence(
            routes=routes,
            error=np.array([item.log_ratio for item in timed], np.float64) - bounds.mean,
            noise=np.array([item.noise for item in timed]),
            std=bounds.std,
            variance=self._variance(_tokens(routes)),
        )

    @cached_property
    def _failures(self) -> tuple[dict[Token, float], dict[Token, float]] | None:
        """Failure probability of each measured token alone, as predicted and as corrected."""
        if not self._repeats:
            return None
        tokens = _tokens([item.route for item in self._repeats])
        alone = self._scorer.score(self._scorer.route_tokens([Route([token]) for token in tokens]))
        likely = np.clip(alone.failure.mean(0), _LEAST_FAILURE, 0.95)
        prior = dict(zip(tokens, map(float, likely), strict=True))
        return prior, token_failures([(item.route, item.failed >= 0.5) for item in self._repeats], prior)

    def _variance(self, tokens: Sequence[Token] | dict[Token, int]) -> dict[Token, float]:
        """Variance of the prediction of each token alone."""
        alone = self._scorer.route_tokens([Route([token]) for token in tokens])
        std = self._bounds(alone, self._scorer.score(alone).log_ratio).std
        return dict(zip(tokens, map(float, np.square(std)), strict=True))

    @cached_property
    def _default_latency(self) -> DefaultLatency:
        """As measured where it was, else as predicted."""
        measured = [measurement for measurement in self._measured if measurement.default_ms]
        if not measured:
            bounds = self._default.bounds(self._scorer.log_default[:, None])
            return DefaultLatency(*(float(np.exp(value[0])) for value in (bounds.mean, bounds.low, bounds.high)))
        centre = float(np.exp(np.mean([np.log(measurement.default_ms or 0.0) for measurement in measured])))
        blocks = [block for measurement in measured for block in measurement.default_blocks_ms] or [centre]
        low, high = np.quantile(blocks, [0.05, 0.95])
        return DefaultLatency(centre, min(float(low), centre), max(float(high), centre))


def _tokens(routes: Sequence[Route]) -> list[Token]:
    return list(dict.fromkeys(token for route in routes for token in route.items()))
