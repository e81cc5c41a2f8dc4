"""What ``routecast compare`` reads: a history in any of its forms, or the result of a tune."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from routecast.datasets.errors import UsageError
from routecast.datasets.measurement import Measurement
from routecast.tuner.compare import Comparison, ModelComparison, Pair, compare_model, compare_models, summarise
from routecast.tuner.results import RoutePrediction, TuneResult

if TYPE_CHECKING:
    from routecast.costmodel.base import CostModel, ModelView, Predictions
    from routecast.datasets.records import Records

RESULT_NAME = "result.json"
BUILTIN = "builtin"


def compare(source: str | Path, cost_model: CostModel | None = None) -> Comparison:
    """Compares predicted with measured for any source.

    Args:
        source: a tune's output folder or ``result.json``, or a history: SQLite file, database URL, Parquet folder or
            journal (``.jsonl``), or ``builtin`` for the shipped history.
        cost_model: predicts the routes of a history; None for the champion or else the shipped one. A tune's result
            holds the predictions that were made before measuring, so it needs none.

    Raises:
        UsageError: the source does not exist, cannot be read, or holds no measurement.
    """
    if is_result(source):
        return compare_result(TuneResult.load(Path(source)))
    records = read_records(source)
    if not records.measurements:
        raise UsageError(f"{_shown(source)} holds no measurements: tune or collect first, or name another history")
    if cost_model is None:
        from routecast.training import find_cost_model

        cost_model = find_cost_model(None)
    if cost_model is None:
        raise UsageError("no cost model is at hand to predict with: make one with `routecast train`, or name one")
    return compare_records(records, cost_model, source=_shown(source))


def is_result(source: str | Path) -> bool:
    """Whether a source names a tune's result: its file, or a folder that has one."""
    path = Path(source)
    return path.suffix == ".json" or (path / RESULT_NAME).is_file()


def read_records(source: str | Path) -> Records:
    """Reads a history in any of its forms; ``builtin`` is the shipped one.

    Raises:
        UsageError: the source does not exist or cannot be read.
    """
    from routecast.datasets.history import History
    from routecast.datasets.records import Records, builtin_records

    path = Path(source)
    if str(source) == BUILTIN:
        return builtin_records()
    if "://" not in str(source) and not path.exists():
        raise UsageError(f"no such history: {path}")
    if path.is_dir():
        return Records.read_parquet(path)
    if path.suffix == ".jsonl":
        return Records.read_journal(path)
    with History(source) as history:
        return history.records()


def compare_result(result: TuneResult) -> Comparison:
    """Compares a tune's predictions, made before its routes were measured, with its measurements."""
    predictions = {prediction.route: prediction for prediction in result.predictions}
    pairs = [Pair(measurement, predictions.get(measurement.route)) for measurement in result.measurements]
    return compare_models(
        [pairs],
        source=f"tune of {result.model_name}",
        predictor="made by the tune before it measured each route",
        notes=result.warnings,
    )


def compare_records(records: Records, cost_model: CostModel, *, source: str) -> Comparison:
    """Compares a cost model's predictions with a history's measurements, per model and environment."""
    groups: defaultdict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for measurement in records.measurements:
        groups[measurement.fingerprint, measurement.environment].append(measurement)
    models = [
        _compare_group(group, records, cost_model)
        for group in groups.values()
        if group[0].fingerprint in records.graphs and group[0].environment in records.environments
    ]
    seen = sum(any(note == SEEN for note in model.notes) for model in models)
    notes = [f"{seen} of {len(models)} models were in the cost model's training data"] if seen else []
    if missing := len(groups) - len(models):
        notes.append(f"{missing} models were left out: the history lacks their graph or environment")
    return summarise(models, source=source, predictor=f"cost model {cost_model.name}", notes=notes)


SEEN = "in the cost model's training data: these figures are no evidence for new models"


def _compare_group(
    measurements: Sequence[Measurement], records: Records, cost_model: CostModel
) -> ModelComparison:
    first = measurements[0]
    view = cost_model.view(records.graphs[first.fingerprint], records.environments[first.environment])
    predictions = predict_routes(view, measurements)
    trained_on: frozenset[str] = getattr(cost_model, "trained_on", frozenset())
    notes = [*view.warnings, *([SEEN] if first.fingerprint in trained_on else [])]
    return compare_model(
        [Pair(measurement, predictions.get(str(measurement.route))) for measurement in measurements], notes
    )


def predict_routes(view: ModelView, measurements: Sequence[Measurement]) -> dict[str, RoutePrediction]:
    """Predictions of the measured routes, by the text of the route."""
    routes = list({measurement.route: None for measurement in measurements})
    return {str(prediction.route): prediction for prediction in route_predictions(view.predict(routes))}


def route_predictions(predictions: Predictions) -> list[RoutePrediction]:
    """The predictions of a batch, route by route."""
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


def _shown(source: str | Path) -> str:
    """The source for people, without the password of a URL."""
    scheme, separator, rest = str(source).partition("://")
    if not separator:
        return str(source)
    return f"{scheme}://{rest.rpartition('@')[2]}"
