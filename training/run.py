"""A whole training run: train, evaluate, record, register, and promote when the champion is beaten."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from routecast.costmodel import BUILTIN, load_cost_model
from routecast.costmodel.storage import SCHEMA
from routecast.datasets.errors import UsageError
from routecast.datasets.history import History
from routecast.datasets.records import Records, builtin_records
from routecast.training.charts import draw
from routecast.training.evaluation import LEARNED, Evaluation, evaluate
from routecast.training.promotion import contest, remembered, save_out_of_fold
from routecast.training.tracking import ARTIFACT, Champion, Tracker, load_champion
from routecast.training.trainer import TrainConfig, TrainingResult, TrainObserver, train_ensemble

if TYPE_CHECKING:
    from routecast.costmodel.ensemble import Ensemble

SHIPPED = "shipped"
"""What stands for a version when the shipped weights are the ones to beat."""


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
    history: History | Records | str | Path | None = None,
    *,
    config: TrainConfig | None = None,
    builtin: bool = True,
    track: bool = True,
    output: str | Path | None = None,
    observer: TrainObserver | None = None,
) -> TrainOutcome:
    """Trains a cost model and makes it the champion if it beats the champion of today.

    Args:
        history: what to learn from: a history, records, or the path of a history; None is the user's own
            history.
        config: how to train.
        builtin: whether the shipped history is learned from as well.
        track: whether the run is recorded in MLflow; without, nothing is registered or promoted.
        output: folder to save the cost model in as well; needed when the run is not tracked.
        observer: is told how training goes.

    Raises:
        UsageError: there is nothing to learn from, or nowhere to save to.
        RoutecastError: the MLflow store cannot be used.
    """
    if not track and output is None:
        raise UsageError("a training run that is not tracked needs a folder for the cost model: give an output")
    records = _records(history)
    if builtin:
        records = builtin_records().merged(records)
    config = config or TrainConfig()
    if not track and output is not None:
        result = train_ensemble(records, config, observer)
        folder = Path(output)
        evaluation = _save(result, records, folder)
        figures = evaluation.figures[LEARNED]
        return TrainOutcome("", "", folder, figures, evaluation, False, None, "not tracked: champion unchanged")
    return _tracked(records, config, None if output is None else Path(output), observer)


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


def _records(history: History | Records | str | Path | None) -> Records:
    if isinstance(history, Records):
        return history
    if isinstance(history, History):
        return history.records()
    with History(history) as opened:
        return opened.records()


def _tracked(
    records: Records, config: TrainConfig, output: Path | None, observer: TrainObserver | None
) -> TrainOutcome:
    with Tracker() as tracker, tempfile.TemporaryDirectory() as scratch:
        losses = _Losses(observer)
        tracker.describe(params=_params(config), tags=_tags(records))
        result = train_ensemble(records, config, losses)
        tracker.log(losses.by_epoch)
        model = Path(scratch) / ARTIFACT
        evaluation = _save(result, records, model)
        tracker.log({0: _values(evaluation)})
        tracker.keep(model, ARTIFACT)
        draw(evaluation, result.out_of_fold, Path(scratch) / "figures")
        tracker.keep(Path(scratch) / "figures", "figures")
        champion = tracker.champion()
        promoted, previous, reason = _judge(result, champion, records)
        version = tracker.register({**_tags(records), "schema": str(SCHEMA), "verdict": reason})
        if promoted:
            tracker.promote(version)
        tracker.describe(tags={"promoted": str(promoted), "verdict": reason})
        folder = tracker.local_model()
        if output is not None:
            _save(result, records, output, evaluation)
            folder = output
    figures = evaluation.figures[LEARNED]
    return TrainOutcome(tracker.run_id, version, folder, figures, evaluation, promoted, previous, reason)


def _save(result: TrainingResult, records: Records, folder: Path, known: Evaluation | None = None) -> Evaluation:
    """Writes weights, out-of-fold predictions and evaluation into one folder."""
    result.model.save(folder)
    save_out_of_fold(result.out_of_fold, folder)
    evaluation = known or evaluate(records, result.out_of_fold)
    text = json.dumps(evaluation.to_json(), indent=1, sort_keys=True)
    (folder / "evaluation.json").write_text(text + "\n", encoding="utf-8")
    return evaluation


def _judge(result: TrainingResult, champion: Champion | None, records: Records) -> tuple[bool, str | None, str]:
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


def _tags(records: Records) -> dict[str, str]:
    return {"history": records.digest(), "measurements": str(len(records))}


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
