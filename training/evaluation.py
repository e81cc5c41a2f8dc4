"""How good the learned cost model and every baseline are on families they never saw, by the same figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from routecast.costmodel.base import Array, Predictions, promise
from routecast.datasets.errors import UsageError
from routecast.training import metrics
from routecast.training.out_of_fold import OutOfFold, RouteRows, figures

if TYPE_CHECKING:
    from routecast.costmodel.baselines import Baseline
    from routecast.datasets.records import Records

LEARNED = "ensemble"
"""Name of the learned cost model beside those of the baselines."""
BUDGETS = (1, 4, 8)
"""Builds that regret is reported for."""


@dataclass(frozen=True)
class Evaluation:
    """Figures on families held out.

    Attributes:
        digest: of the history.
        models, routes: how many were predicted.
        figures: by name of the predictor, then by name of the figure.
        families: the same of each family: by predictor, family and figure.
        backends: the same of each backend: by predictor, backend and figure.
    """

    digest: str
    models: int
    routes: int
    figures: Mapping[str, Mapping[str, float]]
    families: Mapping[str, Mapping[str, Mapping[str, float]]]
    backends: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)

    def rows(self) -> list[dict[str, str | float]]:
        """One row per predictor, for a table: its name and its figures."""
        return [{"predictor": name, **found} for name, found in self.figures.items()]

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form, which ``from_json`` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evaluation:
        """Reads what ``to_json`` wrote."""
        return cls(**data)


def evaluate(
    records: Records, out_of_fold: OutOfFold, make_baselines: Callable[[], Sequence[Baseline]] | None = None
) -> Evaluation:
    """Compares the learned cost model's predictions on held-out families with those of baselines.

    Each baseline is fitted once per fold, to the measurements of the families that the member of that fold
    trained on, and predicts the same routes.

    Args:
        records: what was trained on.
        out_of_fold: predictions of the learned cost model on them.
        make_baselines: makes one of each; None for all of ``routecast.costmodel.baselines``.
    """
    from routecast.costmodel.baselines import baselines

    predictions = {LEARNED: out_of_fold}
    for model in (make_baselines or baselines)():
        found = baseline_out_of_fold(records, out_of_fold, model)
        if found is not None:
            predictions[model.name] = found
    names = sorted(set(out_of_fold.routes.family))
    return Evaluation(
        digest=records.digest(),
        models=len(out_of_fold.models.fingerprint),
        routes=len(out_of_fold.routes),
        figures={name: all_figures(found) for name, found in predictions.items()},
        families={
            name: {family: all_figures(found, family) for family in names} for name, found in predictions.items()
        },
        backends={name: _by_backend(records, found) for name, found in predictions.items()},
    )


def _by_backend(records: Records, found: OutOfFold) -> dict[str, dict[str, float]]:
    environments: dict[str, set[str]] = {}
    for identity in found.models.environment:
        environments.setdefault(records.environments[identity].backend, set()).add(identity)
    return {backend: all_figures(found.only(kept)) for backend, kept in sorted(environments.items())}


def all_figures(found: OutOfFold, family: str | None = None) -> dict[str, float]:
    """``out_of_fold.figures`` and further ones, of one family or of all.

    ``feasible_regret_at_k`` and ``feasible_top1`` say what choosing by prediction costs when routes that fail
    are of no use: k routes are built, those first that promise most for the risk of failing, and the default
        route is at hand.
    ``latency_mape`` is over routes and includes the error of the predicted default latency.
    """
    result = figures(found, None if family is None else (family,))
    groups = [group for group in _groups(found.routes) if family is None or found.routes.family[group[0]] == family]
    chosen = [_choice(found.routes, group) for group in groups]
    for name in chosen[0] if chosen else ():
        values = np.array([item[name] for item in chosen])
        if np.isfinite(values).any():
            result[name] = float(np.nanmean(values))
    error = _latency_error(found, family)
    return result if error is None else {**result, "latency_mape": error}


def _groups(rows: RouteRows) -> list[npt.NDArray[np.int64]]:
    """Indices of the rows of each model and environment, timed or failed."""
    known: dict[tuple[str, str], list[int]] = {}
    for index in np.flatnonzero(~np.isnan(rows.log_ratio) | (rows.failed >= 0.5)):
        known.setdefault((rows.fingerprint[index], rows.environment[index]), []).append(int(index))
    return [np.array(indices) for indices in known.values()]


def _choice(rows: RouteRows, group: npt.NDArray[np.int64]) -> dict[str, float]:
    failed, score = rows.failed[group] >= 0.5, promise(rows.predicted[group], rows.failure[group])
    actual = np.where(failed | np.isnan(rows.log_ratio[group]), np.inf, np.exp(rows.log_ratio[group]))
    result = {f"feasible_regret_at_{k}": metrics.regret(actual, score, k, default=1.0) for k in BUDGETS}
    best = actual.min(initial=1.0)
    first = actual[int(np.argmin(score))]
    return {**result, "feasible_top1": float(min(first, 1.0) <= best * (1 + 1e-9))}


def _latency_error(found: OutOfFold, family: str | None) -> float | None:
    rows, models = found.routes, found.models
    keys = zip(models.fingerprint, models.environment, strict=True)
    of_default = dict(zip(keys, models.predicted - models.log_default, strict=True))
    of_ratio = rows.predicted - rows.log_ratio
    errors = [
        abs(np.exp(of_default[rows.fingerprint[index], rows.environment[index]] + of_ratio[index]) - 1)
        for index in rows.timed
        if family is None or rows.family[index] == family
    ]
    known = [error for error in errors if np.isfinite(error)]
    return float(np.mean(known)) if known else None


def baseline_out_of_fold(records: Records, like: OutOfFold, model: Baseline) -> OutOfFold | None:
    """Predictions of the rows of ``like`` by fits without each row's fold; None when it cannot be fitted."""
    rows, models = like.routes, like.models
    of_routes, of_models = np.full((5, len(rows)), np.nan), np.full((4, len(models.fingerprint)), np.nan)
    places: dict[tuple[str, str], list[int]] = {}
    for place, key in enumerate(zip(rows.fingerprint, rows.environment, strict=True)):
        places.setdefault(key, []).append(place)
    for member in np.unique(models.member):
        held = np.flatnonzero(models.member == member)
        try:
            model.fit(records.without_families({models.family[index] for index in held}))
        except UsageError:
            return None
        for index in held:
            fingerprint, environment = models.fingerprint[index], models.environment[index]
            view = model.view(records.graphs[fingerprint], records.environments[environment])
            found = places.get((fingerprint, environment), [])
            said = view.predict([rows.routes[number] for number in found])
            of_routes[:, found] = _of_routes(said)
            of_models[:, index] = _of_model(said)
    predicted, low, high, failure, build = of_routes
    default, default_low, default_high, gap = of_models
    unknown = np.full(len(rows), np.nan)
    return OutOfFold(
        replace(
            rows,
            predicted=predicted,
            low=low,
            high=high,
            failure=failure,
            predicted_loss=unknown,
            predicted_build=build,
        ),
        replace(models, predicted=default, low=default_low, high=default_high, predicted_gap=gap),
    )


def _of_routes(said: Predictions) -> Array:
    """What ``RouteRows`` holds of predictions, shape (5, R)."""
    low, high, build = np.log(said.ratio_low), np.log(said.ratio_high), np.log(said.build_seconds)
    return np.stack([said.log_ratio, low, high, said.failure, build])


def _of_model(said: Predictions) -> Array:
    """What ``ModelRows`` holds of predictions, shape (4,)."""
    return np.array([*np.log([said.default_ms, said.default_ms_low, said.default_ms_high]), said.gap])
