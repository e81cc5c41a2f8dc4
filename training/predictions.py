"""Predicts each example with a member that did not train on its family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from routecast.costmodel.base import MOST_LOSS, Array
from routecast.costmodel.calibration import Calibration, cross_bounds
from routecast.costmodel.features import Floats
from routecast.costmodel.member import Member
from routecast.costmodel.scorer import GraphScorer
from routecast.costmodel.view import within
from routecast.training.examples import Example
from routecast.training.out_of_fold import ModelRows, OutOfFold, RouteRows


@dataclass(frozen=True)
class _Predicted:
    """One example as one member sees it; route arrays have shape (R,)."""

    member: int
    log_ratio: Array
    log_loss: Array
    broken: Array
    log_build: Array
    log_default: float
    gap: float


def predict_held_out(
    members: Sequence[Member],
    folds: Sequence[frozenset[str]],
    examples: Sequence[Example],
    nominal: float,
) -> OutOfFold:
    """Predictions outside the folds, with intervals that are calibrated without each row's own fold.

    Args:
        members: member k has not seen ``folds[k]``.
        folds: families by member; a family in no fold gets no prediction.
        examples: the whole history.
        nominal: share of the truths that the intervals are to hold.
    """
    pairs = [
        (example, _predict(members[index], index, example))
        for example in examples
        for index, fold in enumerate(folds)
        if example.family in fold
    ]
    return OutOfFold(_route_rows(pairs, nominal), _model_rows(pairs, nominal))


def _predict(member: Member, index: int, example: Example) -> _Predicted:
    scorer = GraphScorer([member], example.graph, example.device)
    scores = scorer.score(scorer.route_tokens(example.routes))
    return _Predicted(
        member=index,
        log_ratio=scores.log_ratio[0],
        log_loss=scores.log_loss[0],
        broken=scores.broken[0],
        log_build=scores.log_build[0],
        log_default=float(scorer.log_default[0]),
        gap=float(scorer.gap[0]),
    )


def _route_rows(pairs: Sequence[tuple[Example, _Predicted]], nominal: float) -> RouteRows:
    kept = [np.flatnonzero(example.lengths) for example, _ in pairs]

    def text(name: str) -> tuple[str, ...]:
        return tuple(getattr(example, name) for (example, _), rows in zip(pairs, kept, strict=True) for _ in rows)

    def joined(arrays: Sequence[Array | Floats]) -> Array:
        chosen = [np.asarray(array, np.float64)[rows] for array, rows in zip(arrays, kept, strict=True)]
        return np.concatenate([np.empty(0), *chosen])

    actual, predicted = (
        joined([item.log_ratio for item, _ in pairs]),
        joined([item.log_ratio for _, item in pairs]),
    )
    member = joined([np.full(len(item.log_ratio), item.member, np.float64) for _, item in pairs])
    low, high = cross_bounds(predicted, actual, member, nominal=nominal, scaled=True)
    log_loss, said_loss = joined([item.log_loss for item, _ in pairs]), joined([item.log_loss for _, item in pairs])
    broken = joined([item.broken for _, item in pairs])
    return RouteRows(
        fingerprint=text("fingerprint"),
        environment=text("environment"),
        model=text("model"),
        family=text("family"),
        routes=tuple(example.routes[row] for (example, _), rows in zip(pairs, kept, strict=True) for row in rows),
        member=member,
        log_ratio=actual,
        noise=joined([item.noise for item, _ in pairs]),
        predicted=predicted,
        low=low,
        high=high,
        failed=joined([item.failed for item, _ in pairs]),
        failure=1 - (1 - broken) * _accurate(said_loss, log_loss, member, nominal),
        log_loss=log_loss,
        predicted_loss=said_loss,
        log_build=joined([item.log_build for item, _ in pairs]),
        predicted_build=joined([item.log_build for _, item in pairs]),
    )


def _accurate(predicted: Array, actual: Array, fold: Array, nominal: float) -> Array:
    """Probability that each row's accuracy loss stays below the limit, calibrated without the row's own fold."""
    found = np.ones(len(predicted))
    for index in np.unique(fold):
        held = fold == index
        others = ~held & ~np.isnan(actual)
        if others.any():
            fitted = Calibration.fit(predicted[others], actual[others], nominal=nominal, scaled=True)
            found[held] = within(fitted.bounds(predicted[None, held]), MOST_LOSS)
    return found


def _model_rows(pairs: Sequence[tuple[Example, _Predicted]], nominal: float) -> ModelRows:
    actual = np.array([example.log_default for example, _ in pairs], np.float64)
    predicted = np.array([item.log_default for _, item in pairs], np.float64)
    member = np.array([item.member for _, item in pairs], np.float64)
    low, high = cross_bounds(predicted, actual, member, nominal=nominal, scaled=False)
    return ModelRows(
        fingerprint=tuple(example.fingerprint for example, _ in pairs),
        environment=tuple(example.environment for example, _ in pairs),
        model=tuple(example.model for example, _ in pairs),
        family=tuple(example.family for example, _ in pairs),
        member=member,
        log_default=actual,
        predicted=predicted,
        low=low,
        high=high,
        gap=np.array([example.gap for example, _ in pairs], np.float64),
        predicted_gap=np.array([item.gap for _, item in pairs], np.float64),
    )
