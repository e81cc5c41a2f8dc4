"""Predicts each example with a member that did not train on its family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from routecast.costmodel.base import Array
from routecast.costmodel.calibration import cross_bounds
from routecast.costmodel.features import Floats
from routecast.costmodel.network import RouteNetwork
from routecast.training.examples import Example, collate
from routecast.training.out_of_fold import ModelRows, OutOfFold, RouteRows


@dataclass(frozen=True)
class _Predicted:
    """One example as one member sees it; route arrays have shape (R,)."""

    member: int
    log_ratio: Array
    failure: Array
    log_build: Array
    log_default: float
    gap: float


def predict_held_out(
    members: Sequence[RouteNetwork],
    folds: Sequence[frozenset[str]],
    examples: Sequence[Example],
    nominal: float,
) -> OutOfFold:
    """Predictions outside the folds, with intervals that are calibrated without each row's own fold.

    Args:
        members: trained networks; member k has not seen ``folds[k]``.
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


def _predict(member: RouteNetwork, index: int, example: Example) -> _Predicted:
    batch = collate([example])
    with torch.inference_mode():
        encoding = member.encode(batch.graphs)
        scores = member.score(encoding, member.effects(encoding, batch.tokens), batch.routes)
    return _Predicted(
        member=index,
        log_ratio=scores.log_ratio.double().numpy(),
        failure=torch.sigmoid(scores.failure).double().numpy(),
        log_build=scores.build.double().numpy(),
        log_default=float(encoding.default),
        gap=float(encoding.gap),
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
        failure=joined([item.failure for _, item in pairs]),
        log_build=joined([item.log_build for item, _ in pairs]),
        predicted_build=joined([item.log_build for _, item in pairs]),
    )


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
