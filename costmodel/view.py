"""One model on one device as an ensemble sees it, corrected by what was measured of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from routecast.costmodel.adaptation import (
    LOSS_RHOS,
    RATIO_RHOS,
    Evidence,
    correct_failures,
    posterior,
    token_failures,
)
from routecast.costmodel.base import Array, ModelView, Predictions
from routecast.costmodel.calibration import Bounds, Calibrations
from routecast.costmodel.familiarity import Familiarity
from routecast.costmodel.features import Token
from routecast.costmodel.repeats import EXACT, Repeats, combine, log_loss
from routecast.costmodel.scorer import GraphScorer, MemberScores, RouteTokens
from routecast.datasets.measurement import Measurement
from routecast.datasets.route import Route

_LEAST_FAILURE = 0.005
_LOSS_NOISE = 0.05
# Standard deviation of what a setting is wrong by that hardly does anything, in natural logarithms. Of what histories
# hold of families held out, TensorRT's would be likelier with less, ONNX Runtime's with more.
_SETTING_STD = 0.05


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
        calibrations: Calibrations,
        familiarity: Familiarity,
        warnings: tuple[str, ...],
        most_loss: float,
        measured: tuple[Measurement, ...] = (),
    ) -> None:
        """Takes the encoded graph, the calibrations, the accuracy limit, and what was measured of this model."""
        self._scorer = scorer
        self._calibrations = calibrations
        self._familiarity = familiarity
        self._warnings = warnings
        self._most_loss = most_loss
        self._measured = measured
        self._ratio = _Quantity(self, "log_ratio", RATIO_RHOS)
        self._loss = _Quantity(self, "log_loss", LOSS_RHOS)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the cost model is out of its depth here, one line each; empty when it is not."""
        return self._warnings

    def adapt(self, measurements: Sequence[Measurement]) -> EnsembleView:
        """A view corrected by these measurements and by those it already had; each counts once."""
        known = {measurement.identity: measurement for measurement in (*self._measured, *measurements)}
        return EnsembleView(
            self._scorer,
            calibrations=self._calibrations,
            familiarity=self._familiarity,
            warnings=self._warnings,
            most_loss=self._most_loss,
            measured=tuple(known.values()),
        )

    def predict(self, routes: Sequence[Route]) -> Predictions:
        """Scores R routes in one batch."""
        tokens = self._scorer.route_tokens(routes)
        scores = self._scorer.score(tokens)
        ratio = self._ratio.corrected(routes, tokens, scores)
        loss = self._loss.corrected(routes, tokens, scores)
        default = self._default_latency
        gap = float(self._scorer.gap.mean())
        local = np.exp(self._scorer.log_local.mean(0))
        return Predictions(
            routes=tuple(routes),
            log_ratio=ratio.mean,
            log_ratio_std=ratio.std,
            ratio_low=np.exp(ratio.low),
            ratio_high=np.exp(ratio.high),
            failure=self._failure(routes, scores, loss) * (tokens.lengths > 0),
            loss=EXACT * np.exp(np.maximum(loss.mean, 0.0)),
            build_seconds=np.exp(scores.log_build.mean(0)),
            default_ms=default.ms,
            default_ms_low=default.low,
            default_ms_high=default.high,
            local_ms=local * (default.ms / np.exp(gap) / local.sum()),
            gap=gap,
        )

    def bounds(self, name: str, tokens: RouteTokens, values: Array) -> Bounds:
        """Interval of a quantity before any correction; settings nobody has measured widen that of the ratio."""
        extra = np.zeros(len(tokens.lengths))
        if name == "log_ratio":
            unknown = np.array([not self._familiarity.knows(token) for token in self._scorer.tokens], np.float64)
            extra = self._familiarity.spread * np.sqrt(tokens.sums(unknown))
        bounds = self._calibrations.of(name).bounds(values, extra)
        changed = (tokens.lengths > 0).astype(np.float64)
        return Bounds(bounds.mean * changed, bounds.std * changed, bounds.low * changed, bounds.high * changed)

    @property
    def least_std(self) -> float:
        """Standard deviation of the log ratio of routes that are expected to change nothing."""
        ratio = self._calibrations.ratio
        return ratio.deviation * ratio.floor

    @property
    def scorer(self) -> GraphScorer:
        """The encoded graph."""
        return self._scorer

    @cached_property
    def repeats(self) -> list[Repeats]:
        """What was measured of routes other than the default."""
        return combine(measurement for measurement in self._measured if measurement.route)

    def _failure(self, routes: Sequence[Route], scores: MemberScores, loss: Bounds) -> Array:
        """Probability of giving no outputs, or outputs too far off."""
        broken: Array = scores.broken.mean(0)
        if self._failures:
            broken = correct_failures(broken, routes, *self._failures)
        failure: Array = 1.0 - (1.0 - broken) * within(loss, self._most_loss)
        return failure

    @cached_property
    def _failures(self) -> tuple[dict[Token, float], dict[Token, float]] | None:
        """Probability of each measured token alone to give no outputs, as predicted and as corrected."""
        if not self.repeats:
            return None
        tokens = _tokens([item.route for item in self.repeats])
        alone = self._scorer.score(self._scorer.route_tokens([Route([token]) for token in tokens]))
        likely = np.clip(alone.broken.mean(0), _LEAST_FAILURE, 0.95)
        prior = dict(zip(tokens, map(float, likely), strict=True))
        return prior, token_failures([(item.route, item.broken >= 0.5) for item in self.repeats], prior)

    @cached_property
    def _default_latency(self) -> DefaultLatency:
        """As measured where it was, else as predicted."""
        measured = [measurement for measurement in self._measured if measurement.default_ms]
        if not measured:
            bounds = self._calibrations.default.bounds(self._scorer.log_default[:, None])
            return DefaultLatency(*(float(np.exp(value[0])) for value in (bounds.mean, bounds.low, bounds.high)))
        centre = float(np.exp(np.mean([np.log(measurement.default_ms or 0.0) for measurement in measured])))
        blocks = [block for measurement in measured for block in measurement.default_blocks_ms] or [centre]
        low, high = np.quantile(blocks, [0.05, 0.95])
        return DefaultLatency(centre, min(float(low), centre), max(float(high), centre))


class _Quantity:
    """A quantity of routes that measurements correct: log ratio or accuracy loss."""

    def __init__(self, view: EnsembleView, name: str, rhos: tuple[float, ...]) -> None:
        self._view = view
        self._name = name
        self._rhos = rhos

    def corrected(self, routes: Sequence[Route], tokens: RouteTokens, scores: MemberScores) -> Bounds:
        """Interval for R routes."""
        bounds = self._view.bounds(self._name, tokens, getattr(scores, self._name))
        if self._evidence is None:
            return bounds
        variance = np.array(list(self._variance(self._view.scorer.tokens).values()))
        shift, std = posterior(self._evidence, routes, bounds.std, tokens.sums(variance))
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
    def _evidence(self) -> Evidence | None:
        known = [item for item in self._view.repeats if getattr(item, self._name) is not None]
        if not known:
            return None
        routes = tuple(item.route for item in known)
        bounds = self._alone(routes)
        return Evidence(
            routes=routes,
            error=np.array([getattr(item, self._name) for item in known], np.float64) - bounds.mean,
            noise=np.array([item.noise if self._name == "log_ratio" else _LOSS_NOISE for item in known]),
            std=bounds.std,
            variance=self._variance(_tokens(routes)),
            rhos=self._rhos,
        )

    def _variance(self, tokens: Sequence[Token] | Mapping[Token, int]) -> dict[Token, float]:
        """Variance of the prediction of each token alone.

        Of a log ratio, less the error that the calibration expects of any prediction: that is of the network and its
        arithmetic far more often than of a setting.
        """
        std = self._alone([Route([token]) for token in tokens]).std
        if self._name == "log_ratio":
            std = _SETTING_STD + np.maximum(std - self._view.least_std, 0.0)
        return dict(zip(tokens, map(float, np.square(std)), strict=True))

    def _alone(self, routes: Sequence[Route]) -> Bounds:
        """Interval before any correction."""
        tokens = self._view.scorer.route_tokens(routes)
        return self._view.bounds(self._name, tokens, getattr(self._view.scorer.score(tokens), self._name))


def within(loss: Bounds, most_loss: float) -> Array:
    """Probability that the accuracy loss of each of R routes is not above a limit, shape (R,)."""
    distance = np.where(loss.std > 0, (log_loss(most_loss) - loss.mean) / np.maximum(loss.std, 1e-9), np.inf)
    return np.asarray(ndtr(distance), np.float64)


def _tokens(routes: Sequence[Route]) -> list[Token]:
    return list(dict.fromkeys(token for route in routes for token in route.items()))
