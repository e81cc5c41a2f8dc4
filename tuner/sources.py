"""What ``routecast compare`` reads: a history in any of its forms, or the result of a tune."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from routecast.costmodel.base import CostModel
from routecast.datasets.errors import UsageError
from routecast.datasets.measurement import Measurement
from routecast.tuner.comparison import (
    Comparison,
    ModelComparison,
    Pair,
    compare_model,
    compare_models,
    summarise,
)
from routecast.tuner.predictions import by_route, held_out_members, need_cost_model
from routecast.tuner.results import TuneResult

if TYPE_CHECKING:
    from routecast.costmodel.ensemble import Ensemble
    from routecast.costmodel.familiarity import Familiarity
    from routecast.datasets.history import History
    from routecast.datasets.parquet_history import ParquetHistory
    from routecast.datasets.records import Records

RESULT_NAME = "result.json"
BUILTIN = "builtin"


def compare(source: str | Path, cost_model: CostModel | str | Path | None = None) -> Comparison:
    """Compares predicted with measured for any source.

    Args:
        source: a tune's output folder or ``result.json``, or a history: SQLite file, database URL, Parquet
            folder, journal (``.jsonl``), or ``builtin`` for the shipped one.
        cost_model: a cost model or its folder, which predicts the routes of a history; None is the champion,
            or the shipped one without it. A tune's result needs none: it holds its own predictions.

    Raises:
        UsageError: the source does not exist, cannot be read, or holds no measurement.
    """
    if is_result(source):
        return compare_result(TuneResult.load(Path(source)))
    records = read_records(source)
    if not records.measurements:
        raise UsageError(f"{without_password(source)} holds no measurements: tune or collect first")
    members = {} if isinstance(cost_model, CostModel) else held_out_members(cost_model)
    return compare_records(records, need_cost_model(cost_model), source=without_password(source), members=members)


def is_result(source: str | Path) -> bool:
    """Whether a source names a tune's result: its file, or a folder that has one."""
    path = Path(source)
    return path.suffix == ".json" or (path / RESULT_NAME).is_file()


@contextmanager
def open_history(source: str | Path) -> Iterator[History | ParquetHistory | Records]:
    """Opens a history in any of its forms, to be read as a stream where the form allows that.

    Raises:
        UsageError: the source does not exist or cannot be read.
    """
    from routecast.datasets.history import History
    from routecast.datasets.parquet_history import ParquetHistory
    from routecast.datasets.records import Records, builtin_records

    path = Path(source)
    if str(source) == BUILTIN:
        yield builtin_records()
    elif "://" not in str(source) and not path.exists():
        raise UsageError(f"no such history: {path}")
    elif path.is_dir():
        yield ParquetHistory(path)
    elif path.suffix == ".jsonl":
        yield Records.read_journal(path)
    else:
        with History(source) as history:
            yield history


def read_records(source: str | Path) -> Records:
    """Reads a history in any of its forms; ``builtin`` is the shipped one.

    Raises:
        UsageError: the source does not exist or cannot be read.
    """
    from routecast.datasets.records import Records

    with open_history(source) as history:
        return history if isinstance(history, Records) else history.records()


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


def compare_records(
    records: Records, cost_model: CostModel, *, source: str, members: Mapping[str, int] | None = None
) -> Comparison:
    """Compares a cost model's predictions with a history's measurements, per model and environment.

    Args:
        records: the history.
        cost_model: predicts.
        source: where the history comes from, for people.
        members: index of the ensemble's member that was trained without a family, by family. Models of these
            families are predicted by that member alone, so that nothing is predicted by what remembers it.
    """
    groups: defaultdict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for measurement in records.measurements:
        groups[measurement.fingerprint, measurement.environment].append(measurement)
    models = [
        _compare_group(group, records, cost_model, members or {})
        for group in groups.values()
        if group[0].fingerprint in records.graphs and group[0].environment in records.environments
    ]
    notes = []
    for note, said in (
        (HELD_OUT, "predicted by the member that was trained without their family"),
        (SEEN, SEEN),
    ):
        if count := sum(note in model.notes for model in models):
            notes.append(f"{count} of {len(models)} models: {said}")
    if missing := len(groups) - len(models):
        notes.append(f"{missing} models were left out: the history lacks their graph or environment")
    return summarise(models, source=source, predictor=f"cost model {cost_model.name}", notes=notes)


SEEN = "the cost model was trained on this family: its figures are no evidence for new ones"
HELD_OUT = "predicted by the member of the ensemble that was trained without this family"


def _compare_group(
    measurements: Sequence[Measurement], records: Records, cost_model: CostModel, members: Mapping[str, int]
) -> ModelComparison:
    first = measurements[0]
    notes = []
    if first.family in members:
        ensemble = cast("Ensemble", cost_model)
        cost_model = replace(ensemble, members=[ensemble.members[members[first.family]]])
        notes.append(HELD_OUT)
    elif first.family in _trained_families(cost_model):
        notes.append(SEEN)
    view = cost_model.view(records.graphs[first.fingerprint], records.environments[first.environment])
    routes = list(dict.fromkeys(measurement.route for measurement in measurements))
    predictions = {prediction.route: prediction for prediction in by_route(view.predict(routes))}
    pairs = [Pair(measurement, predictions[measurement.route]) for measurement in measurements]
    return compare_model(pairs, [*view.warnings, *notes])


def _trained_families(cost_model: CostModel) -> frozenset[str]:
    """Families of the training history; a cost model that was not trained, such as a baseline, has none."""
    familiarity: Familiarity | None = getattr(cost_model, "familiarity", None)
    return familiarity.families if familiarity else frozenset()


def without_password(source: str | Path) -> str:
    """A source for people: user, password and query of a URL are left out."""
    scheme, separator, _ = str(source).partition("://")
    if not separator or scheme == "sqlite":
        return str(source)
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(str(source))
        return URL.create(url.drivername, host=url.host, port=url.port, database=url.database).render_as_string()
    except (ArgumentError, ValueError):
        return f"{scheme}://..."
