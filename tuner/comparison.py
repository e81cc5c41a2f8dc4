"""Predicted against measured: how good predictions were, and what each way of choosing would have lost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from typing import Any

from routecast.datasets.measurement import Measurement, Purpose
from routecast.datasets.route import Route
from routecast.training import metrics
from routecast.tuner.results import RoutePrediction


@dataclass(frozen=True)
class Pair:
    """One route of one model as it was measured and, where there is one, as it was predicted."""

    measurement: Measurement
    prediction: RoutePrediction | None = None

    @property
    def covered(self) -> bool | None:
        """Whether the predicted interval holds the measured ratio; None when either is absent."""
        if self.prediction is None or self.measurement.ratio is None:
            return None
        return self.prediction.ratio_low <= self.measurement.ratio <= self.prediction.ratio_high

    @property
    def scored(self) -> bool:
        """Whether it says something about predictions: an ok route other than the default that has one."""
        measurement = self.measurement
        timed = measurement.ok and measurement.ratio is not None
        return timed and not measurement.route.is_default and self.prediction is not None


@dataclass(frozen=True)
class Scores:
    """How good predictions were; None where too little was measured to say.

    Attributes:
        routes: number of routes that were predicted and then measured ok, the default route not counted.
        ratio_error: median of abs(predicted ratio / measured ratio - 1).
        latency_error: the same of the latency in ms.
        spearman: rank correlation of predicted and measured ratio within a model; their mean over several.
        coverage: share of measured ratios that lie in their predicted interval.
    """

    routes: int
    ratio_error: float | None = None
    latency_error: float | None = None
    spearman: float | None = None
    coverage: float | None = None


@dataclass(frozen=True)
class ModelComparison:
    """Predicted against measured for one model in one environment.

    Attributes:
        model, family, fingerprint, environment: what was measured, and where (identity of the environment).
        pairs: one per route, the fastest first, routes that failed last.
        scores: how good the predictions were.
        failed: number of routes that did not end ok.
        best: the fastest ok route; None when nothing ended ok.
        pruning_loss: default route over the fastest measured route, minus 1: what the default never tries.
        selection_loss: the route with the smallest sum of local times over the fastest profiled one, minus 1:
            what choosing by local profiles would cost.
        first_choice_loss: the route that was predicted fastest over the fastest measured one, minus 1.
        gap: median of end-to-end latency over the sum of local times.
        notes: what to keep in mind when reading it, one line each.
    """

    model: str
    family: str
    fingerprint: str
    environment: str
    pairs: tuple[Pair, ...]
    scores: Scores
    failed: int
    best: Pair | None
    pruning_loss: float | None
    selection_loss: float | None
    first_choice_loss: float | None
    gap: float | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Predicted against measured for every model of a source.

    Attributes:
        source: where the measurements come from, for people.
        predictor: where the predictions come from, for people.
        models: per model and environment.
        overall: scores over all of them.
        notes: what holds for all of them, one line each.
    """

    source: str
    predictor: str
    models: tuple[ModelComparison, ...]
    overall: Scores
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form; the local profiles are given as their sums."""
        return {
            "source": self.source,
            "predictor": self.predictor,
            "notes": list(self.notes),
            "overall": asdict(self.overall),
            "models": [_model_json(model) for model in self.models],
        }


def compare_model(pairs: Iterable[Pair], notes: Sequence[str] = ()) -> ModelComparison:
    """Compares what was predicted with what was measured of one model in one environment.

    Args:
        pairs: at least one; of a route measured several times, the confirming or else the last one counts.
        notes: carried into the result.
    """
    kept = _one_per_route(pairs)
    ok = [pair for pair in kept if pair.measurement.ok and pair.measurement.ratio is not None]
    first = kept[0].measurement
    best = ok[0] if ok else None
    # The fastest of measured routes may be none faster than the default, which has ratio 1 by definition.
    floor = min(1.0, _ratio(best)) if best else None
    return ModelComparison(
        model=first.model or first.fingerprint[:12],
        family=first.family,
        fingerprint=first.fingerprint,
        environment=first.environment,
        pairs=tuple(kept),
        scores=score(kept),
        failed=sum(not pair.measurement.ok for pair in kept),
        best=best,
        pruning_loss=1 / floor - 1 if floor else None,
        selection_loss=_selection_loss(ok),
        first_choice_loss=_first_choice_loss(ok),
        gap=_gap(ok),
        notes=tuple(notes),
    )


def compare_models(
    groups: Iterable[Sequence[Pair]], *, source: str, predictor: str, notes: Sequence[str] = ()
) -> Comparison:
    """Compares several models; each group holds the pairs of one model in one environment."""
    models = tuple(compare_model(group) for group in groups if group)
    return summarise(models, source=source, predictor=predictor, notes=notes)


def summarise(
    models: Sequence[ModelComparison], *, source: str, predictor: str, notes: Sequence[str] = ()
) -> Comparison:
    """Puts the models of one source together, with scores over all of their routes."""
    pooled = score([pair for model in models for pair in model.pairs])
    correlations = [model.scores.spearman for model in models if model.scores.spearman is not None]
    overall = replace(pooled, spearman=fmean(correlations) if correlations else None)
    return Comparison(source, predictor, tuple(models), overall, tuple(notes))


def score(pairs: Sequence[Pair]) -> Scores:
    """Scores the predictions of routes that ended ok."""
    scored = [(pair.measurement, pair.prediction) for pair in pairs if pair.scored and pair.prediction]
    if not scored:
        return Scores(0)
    measured = [row.ratio or math.nan for row, _ in scored]
    predicted = [prediction.ratio for _, prediction in scored]
    latencies = [(row.latency_ms, prediction.latency_ms) for row, prediction in scored if row.latency_ms]
    return Scores(
        routes=len(scored),
        ratio_error=metrics.median_ape(measured, predicted),
        latency_error=metrics.median_ape(*zip(*latencies, strict=True)) if latencies else None,
        # Two values always correlate perfectly.
        spearman=_finite(metrics.spearman(measured, predicted)) if len(scored) > 2 else None,
        coverage=metrics.coverage(
            measured, [item.ratio_low for _, item in scored], [item.ratio_high for _, item in scored]
        ),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _one_per_route(pairs: Iterable[Pair]) -> list[Pair]:
    """The pair that counts for each route, the fastest first and failed ones last.

    A confirming measurement counts before any other, then the later one. It keeps the local profile of an
    earlier one when it has none, since a confirmation times without profiling.
    """
    found: dict[Route, Pair] = {}
    ordered = sorted(pairs, key=lambda pair: (pair.measurement.purpose is Purpose.CONFIRM, pair.measurement.created))
    for pair in ordered:
        route = pair.measurement.route
        earlier = found.get(route, pair)
        profile = pair.measurement.local_profile or earlier.measurement.local_profile
        measurement = replace(pair.measurement, local_profile=profile)
        found[route] = Pair(measurement, pair.prediction or earlier.prediction)
    return sorted(found.values(), key=lambda pair: (not pair.measurement.ok, _ratio(pair)))


def _ratio(pair: Pair) -> float:
    return math.inf if pair.measurement.ratio is None else pair.measurement.ratio


def _selection_loss(ok: Sequence[Pair]) -> float | None:
    profiled = [pair for pair in ok if pair.measurement.local_sum_ms]
    if len(profiled) < 2:
        return None
    chosen = min(profiled, key=lambda pair: pair.measurement.local_sum_ms or math.inf)
    return _ratio(chosen) / min(map(_ratio, profiled)) - 1


def _first_choice_loss(ok: Sequence[Pair]) -> float | None:
    predicted = [(pair.prediction.ratio, _ratio(pair)) for pair in ok if pair.scored and pair.prediction]
    if len(predicted) < 2:
        return None
    return min(predicted)[1] / min(measured for _, measured in predicted) - 1


def _gap(ok: Sequence[Pair]) -> float | None:
    gaps = [
        pair.measurement.latency_ms / local
        for pair in ok
        if pair.measurement.latency_ms and (local := pair.measurement.local_sum_ms)
    ]
    return median(gaps) if gaps else None


def _model_json(model: ModelComparison) -> dict[str, Any]:
    plain = {name: getattr(model, name) for name in _PLAIN_FIELDS}
    return {
        **plain,
        "notes": list(model.notes),
        "scores": asdict(model.scores),
        "best": str(model.best.measurement.route) if model.best else None,
        "routes": [_pair_json(pair) for pair in model.pairs],
    }


_PLAIN_FIELDS = (
    "model",
    "family",
    "fingerprint",
    "environment",
    "failed",
    "pruning_loss",
    "selection_loss",
    "first_choice_loss",
    "gap",
)


def _pair_json(pair: Pair) -> dict[str, Any]:
    measurement = pair.measurement
    measured = {
        name: getattr(measurement, name)
        for name in ("ratio", "ratio_low", "ratio_high", "latency_ms", "default_ms", "local_sum_ms")
    }
    predicted = None if pair.prediction is None else pair.prediction.to_json()
    return {
        "route": str(measurement.route),
        "status": str(measurement.status),
        "measured": measured,
        "accuracy": dict(measurement.accuracy),
        "predicted": predicted,
        "covered": pair.covered,
    }
