"""A whole training run: train, evaluate, record, register, and promote when the champion is beaten."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from routecast.costmodel import BUILTIN, load_cost_model
from routecast.costmodel.storage import DESCRIPTION, SCHEMA
from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.history import History
from routecast.datasets.parquet_history import ParquetHistory, builtin_histories
from routecast.datasets.records import Records
from routecast.training.charts import draw
from routecast.training.config import TrainConfig, TrainObserver
from routecast.training.evaluation import LEARNED, Evaluation, evaluate
from routecast.training.learned import save_learned
from routecast.training.promotion import contest, remembered, save_out_of_fold
from routecast.training.registry import SHIPPED, Registered, Registry
from routecast.training.serving import add_pyfunc
from routecast.training.store import ExampleStore
from routecast.training.streaming import Source
from routecast.training.tracking import ARTIFACT, Tracker, load_champion
from routecast.training.trainer import TrainingResult, example_store, train_ensemble

if TYPE_CHECKING:
    from routecast.costmodel.ensemble import Ensemble


@dataclass(frozen=True)
class TrainOutcome:
    """What a training run gave.

    Attributes:
        run_id: in MLflow, empty when it was not tracked.
        version: in the registry, empty when it was not tracked.
        model_path: folder of the cost model.
        metrics: figures of the cost model on families held out, by name.
        evaluation: the same beside those of the baselines, and by family.
        promoted: whether it became the champion.
        previous: version of the champion it had to beat, ``shipped`` for the shipped weights, None without
            either.
        reason: one line on why it was promoted or not.
    """

    run_id: str
    version: str
    model_path: Path
    metrics: Mapping[str, float]
    evaluation: Evaluation
    promoted: bool
    previous: str | None
    reason: str


def train(
    history: Source | Records | str | Path | None = None,
    *,
    config: TrainConfig | None = None,
    builtin: bool = True,
    track: bool = True,
    output: str | Path | None = None,
    observer: TrainObserver | None = None,
    processes: int = 1,
    device: str = "cpu",
) -> TrainOutcome:
    """Trains a cost model and makes it the champion if it beats the champion of today.

    The history is read as a stream into a file of about 0.5 kB per measurement in the folder for temporary files
    (``TMPDIR``); memory does not grow with it. Figures of a large history are of a sample of it (``store.SAMPLE``).

    Args:
        history: what to learn from: a ``History``, a ``ParquetHistory``, records, or the path or URL of a history or
            the folder of its Parquet files; None is the user's own history.
        config: how to train.
        builtin: whether the shipped history is learned from as well.
        track: whether the run is recorded in MLflow; without, nothing is registered or promoted.
        output: folder to save the cost model in as well; needed when the run is not tracked.
        observer: is told how training goes.
        processes: how many train together on this machine, each with a batch of its own per step.
        device: where they compute: ``cpu``, or ``cuda`` for a GPU per process.

    Raises:
        UsageError: there is nothing to learn from, nowhere to save to, or fewer GPUs than processes.
        RoutecastError: the MLflow store cannot be used, or a process failed.
    """
    if not track and output is None:
        raise UsageError("a training run that is not tracked needs a folder for the cost model: give an output")
    config = config or TrainConfig()
    with opened(history) as source, example_store(*(builtin_histories() if builtin else ()), source) as store:
        learn = _Learning(store, config, processes, device)
        if not track and output is not None:
            result, folder = learn(observer), Path(output)
            evaluation = _evaluate(result, store)
            _save(result, evaluation, store, folder)
            figures = evaluation.figures[LEARNED]
            return TrainOutcome("", "", folder, figures, evaluation, False, None, "not tracked: champion unchanged")
        return _tracked(learn, None if output is None else Path(output), observer)


def find_cost_model(path: str | Path | None = None) -> Ensemble | None:
    """The cost model to predict with: that in ``path``, else the champion, else the shipped one, else None.

    Raises:
        UsageError: the folder, or the champion, holds no cost model that this version can read.
    """
    if path is not None:
        return load_cost_model(path)
    champion = load_champion()
    if champion is not None:
        return load_cost_model(champion)
    return load_cost_model() if (BUILTIN / "model.json").exists() else None


@dataclass(frozen=True)
class _Learning:
    """A training run that has its examples and only needs an observer."""

    store: ExampleStore
    config: TrainConfig
    processes: int
    device: str

    def __call__(self, observer: TrainObserver | None) -> TrainingResult:
        return train_ensemble(self.store, self.config, observer, self.processes, self.device)


@contextmanager
def opened(history: Source | Records | str | Path | None) -> Iterator[Source | Records]:
    """A history to be read as a stream: what is open already, or what a path or URL names (None: the user's own)."""
    if history is not None and not isinstance(history, (str, Path)):
        yield history
    elif history is not None and "://" not in str(history) and Path(history).is_dir():
        yield ParquetHistory(history)
    else:
        with History(history) as opened:
            yield opened


def _tracked(learn: _Learning, output: Path | None, observer: TrainObserver | None) -> TrainOutcome:
    store = learn.store
    with Tracker() as tracker, tempfile.TemporaryDirectory() as scratch:
        losses = _Losses(observer)
        tracker.describe(params=_params(learn.config), tags=_tags(store))
        result = learn(losses)
        tracker.log(losses.by_epoch)
        model = Path(scratch) / ARTIFACT
        evaluation = _evaluate(result, store)
        _save(result, evaluation, store, model)
        add_pyfunc(model)
        tracker.log({0: _values(evaluation)})
        tracker.keep(model, ARTIFACT)
        draw(evaluation, result.out_of_fold, Path(scratch) / "figures")
        tracker.keep(Path(scratch) / "figures", "figures")
        version = tracker.register({**_tags(store), "schema": str(SCHEMA)})
        promoted, previous, reason = _settle(tracker.registry, version, result, store.records(store.sample()))
        tracker.describe(tags={"promoted": str(promoted), "verdict": reason})
        folder = tracker.local_model()
        if output is not None:
            _save(result, evaluation, store, output)
            folder = output
    figures = evaluation.figures[LEARNED]
    return TrainOutcome(tracker.run_id, version, folder, figures, evaluation, promoted, previous, reason)


def _evaluate(result: TrainingResult, store: ExampleStore) -> Evaluation:
    """Figures on what was held out, with the digest of the whole history."""
    return replace(evaluate(store.records(store.sample()), result.out_of_fold), digest=store.summary.digest)


def _save(result: TrainingResult, evaluation: Evaluation, store: ExampleStore, folder: Path) -> None:
    """Writes all that a cost model is and remembers into one folder, such that no mixture is ever there.

    A process that ends in the middle leaves a folder without ``model.json``, which is no cost model.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".routecast-", dir=folder) as scratch:
            part = Path(scratch)
            result.model.save(part)
            save_out_of_fold(result.out_of_fold, part)
            save_learned(store.measured(), part)
            text = json.dumps(evaluation.to_json(), indent=1, sort_keys=True)
            (part / "evaluation.json").write_text(text + "\n", encoding="utf-8")
            (folder / DESCRIPTION).unlink(missing_ok=True)
            for path in sorted(part.iterdir(), key=lambda path: path.name == DESCRIPTION):
                path.replace(folder / path.name)
    except OSError as error:
        raise RoutecastError(f"cannot save the cost model to {folder}: {error.strerror}") from error


def _settle(registry: Registry, version: str, result: TrainingResult, records: Records) -> tuple[bool, str | None, str]:
    """Judges and promotes; anew when another run has moved the alias between the two."""
    while True:
        champion = registry.champion()
        promoted, previous, reason = _judge(result, champion, records)
        if not promoted or registry.promote(version, champion, previous):
            registry.tag(version, "verdict", reason)
            return promoted, previous, reason


def _judge(result: TrainingResult, champion: Registered | None, records: Records) -> tuple[bool, str | None, str]:
    """Whether to promote, what had to be beaten, and why."""
    if champion is None and not (BUILTIN / "model.json").exists():
        return True, None, "promoted: there was no champion"
    previous = SHIPPED if champion is None else champion.version
    folder = BUILTIN if champion is None else champion.folder
    rival = "the shipped weights" if champion is None else f"champion {champion.version}"
    try:
        found = contest(result.out_of_fold, load_cost_model(folder), remembered(folder), records)
    except UsageError as error:
        return True, previous, f"promoted: {rival} cannot be used any more ({error})"
    return found.won, previous, f"{'promoted' if found.won else 'not promoted'}: {found.verdict(rival)}"


def _params(config: TrainConfig) -> dict[str, object]:
    """The configuration, nested names joined by dots."""
    flat: dict[str, object] = {}
    for name, value in asdict(config).items():
        if isinstance(value, dict):
            flat.update({f"{name}.{inner}": item for inner, item in value.items()})
        else:
            flat[name] = value
    return flat


def _tags(store: ExampleStore) -> dict[str, str]:
    return {"history": store.summary.digest, "measurements": str(store.summary.measurements)}


def _values(evaluation: Evaluation) -> dict[str, float]:
    """Figures by name for MLflow: of the cost model, of each family, and of each baseline."""
    values: dict[str, float] = {}
    for predictor, found in evaluation.figures.items():
        prefix = "heldout" if predictor == LEARNED else f"baseline.{predictor}"
        values.update({f"{prefix}.{name}": value for name, value in found.items()})
    for family, found in evaluation.families[LEARNED].items():
        values.update({f"family.{family}.{name}": value for name, value in found.items()})
    return values


class _Losses(TrainObserver):
    """Keeps the losses of each epoch, averaged over the members, and passes everything on."""

    def __init__(self, inner: TrainObserver | None) -> None:
        self._inner = inner or TrainObserver()
        self._members = 1
        self.by_epoch: dict[int, dict[str, float]] = {}

    def started(self, members: int, epochs: int, examples: int) -> None:
        """See ``TrainObserver``."""
        self._members = members
        self._inner.started(members, epochs, examples)

    def epoch(self, member: int, epoch: int, losses: Mapping[str, float]) -> None:
        """See ``TrainObserver``."""
        held = self.by_epoch.setdefault(epoch, {})
        for name, value in losses.items():
            held[f"loss.{name}"] = held.get(f"loss.{name}", 0.0) + value / self._members
        self._inner.epoch(member, epoch, losses)

    def finished(self, result: TrainingResult) -> None:
        """See ``TrainObserver``."""
        self._inner.finished(result)
