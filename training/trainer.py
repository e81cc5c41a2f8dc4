"""Trains an ensemble on a history, each member without some families, and calibrates it on those."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from routecast.costmodel.base import Array
from routecast.costmodel.calibration import Calibration, Calibrations
from routecast.costmodel.ensemble import Ensemble
from routecast.costmodel.familiarity import Familiarity, powers, seen_versions
from routecast.costmodel.member import Member
from routecast.costmodel.network import RouteNetwork
from routecast.datasets.errors import UsageError
from routecast.datasets.records import Records
from routecast.datasets.splits import family_folds
from routecast.training.config import TrainConfig, TrainObserver
from routecast.training.distributed import train_members
from routecast.training.forests import enough, fit_forest, fit_risks
from routecast.training.out_of_fold import OutOfFold, figures
from routecast.training.predictions import predict_held_out
from routecast.training.store import ExampleStore
from routecast.training.streaming import RecordsSource, Source, gather

_UNKNOWN_LATENCY, _UNKNOWN_LOSS = 1.0, 3.0


@dataclass(frozen=True)
class TrainingResult:
    """What training gave.

    Attributes:
        model: the ensemble, calibrated.
        out_of_fold: predictions of every measured route by a member that did not see its family.
        metrics: figures on those, by name (``out_of_fold.figures``).
    """

    model: Ensemble
    out_of_fold: OutOfFold
    metrics: Mapping[str, float]


@contextmanager
def example_store(*sources: Source | Records) -> Iterator[ExampleStore]:
    """The examples of histories, in a temporary folder that is removed afterwards.

    Args:
        sources: the histories, the largest last.

    Raises:
        UsageError: a history is damaged.
        RoutecastError: the folder has no room.
    """
    opened = [RecordsSource(source) if isinstance(source, Records) else source for source in sources]
    with (
        tempfile.TemporaryDirectory(prefix="routecast-") as folder,
        gather(opened, Path(folder) / "examples.db") as store,
    ):
        yield store


def train_ensemble(
    history: ExampleStore | Source | Records,
    config: TrainConfig | None = None,
    observer: TrainObserver | None = None,
    processes: int = 1,
    device: str = "cpu",
) -> TrainingResult:
    """Trains an ensemble.

    The families are dealt into as many folds as there are members, or as there are families when those are
    fewer; member k never sees fold k. The same history, configuration, number of processes and of torch threads give
    the same weights on a CPU.

    Args:
        history: what to learn from; measurements are streamed, never all in memory.
        config: how to train.
        observer: is told how training goes.
        processes: how many share each step, every one with a batch of its own.
        device: ``cpu``, or ``cuda`` for a GPU per process.

    Raises:
        UsageError: the history holds no measurement to learn from, or there are fewer GPUs than processes.
        RoutecastError: one of several processes failed.
    """
    if not isinstance(history, ExampleStore):
        with example_store(history) as store:
            return train_ensemble(store, config, observer, processes, device)
    config, observer, store = config or TrainConfig(), observer or TrainObserver(), history
    if not store.summary.timed:
        raise UsageError("nothing to train on: no route in the history was timed; run `routecast collect`")
    folds = _folds(store, config)
    observer.started(config.members, config.passes(len(store), processes), len(store))
    networks = train_members(store, folds, config, observer, processes, device)
    members = _members(store, folds, networks, config)
    out_of_fold = predict_held_out(members, folds, [store[index] for index in store.sample()], config.nominal)
    metrics = figures(out_of_fold)
    model = Ensemble(
        members=members,
        calibrations=_calibrations(out_of_fold, store.summary.spread, config.nominal),
        familiarity=_familiarity(store, calibrated=len(out_of_fold.routes.timed) > 0),
        training=_provenance(store, config, processes),
        metrics=metrics,
    )
    result = TrainingResult(model, out_of_fold, metrics)
    observer.finished(result)
    return result


def _folds(store: ExampleStore, config: TrainConfig) -> list[frozenset[str]]:
    """Families each member must not see; one empty fold when there is only one family."""
    sizes = store.family_sizes()
    if len(sizes) < 2 or config.members < 2:
        return [frozenset()]
    return list(family_folds(sizes, min(config.members, len(sizes)), config.seed))


def _members(
    store: ExampleStore, folds: Sequence[frozenset[str]], networks: Sequence[RouteNetwork], config: TrainConfig
) -> list[Member]:
    """Puts beside each network the forest and the risks of the families that the network saw."""
    members = []
    for index, network in enumerate(networks):
        held = folds[index % len(folds)]
        known = np.array([place for place, family in enumerate(store.families) if family not in held], np.int64)
        seed = config.seed * 1000 + index
        examples = enough(store, known, seed)
        members.append(Member(network, fit_forest(examples, seed), fit_risks(examples)))
    return members


def _calibrations(found: OutOfFold, spread: float, nominal: float) -> Calibrations:
    rows, models = found.routes, found.models
    return Calibrations(
        ratio=_calibration(rows.predicted, rows.log_ratio, spread, nominal),
        loss=_calibration(rows.predicted_loss, rows.log_loss, _UNKNOWN_LOSS, nominal),
        default=_calibration(models.predicted, models.log_default, _UNKNOWN_LATENCY, nominal, scaled=False),
    )


def _calibration(predicted: Array, actual: Array, spread: float, nominal: float, *, scaled: bool = True) -> Calibration:
    """Fitted to the truths that are known; without any, errors are taken to be as large as ``spread``."""
    known = ~np.isnan(actual)
    if not known.any():
        return Calibration.guess(spread, nominal=nominal)
    return Calibration.fit(predicted[known], actual[known], nominal=nominal, scaled=scaled)


def _familiarity(store: ExampleStore, *, calibrated: bool) -> Familiarity:
    environments = store.environments()
    return Familiarity(
        ops=frozenset(store.summary.ops),
        settings=frozenset(store.summary.settings),
        backends=frozenset(item.backend for item in environments),
        devices={item.kind: powers(item) for item in environments},
        families=frozenset(store.families),
        measurements=store.summary.measurements,
        models=store.models(),
        spread=store.summary.spread,
        calibrated=calibrated,
        versions=seen_versions(environments),
    )


def _provenance(store: ExampleStore, config: TrainConfig, processes: int) -> dict[str, Any]:
    return {
        "digest": store.summary.digest,
        "examples": len(store),
        "processes": processes,
        "config": asdict(config),
        "versions": {name: _version(name) for name in ("routecast", "torch", "torch-geometric")},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
