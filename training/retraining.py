"""Retraining as a process: trains when it is worth it, judges, promotes, and can put the previous champion back.

Made for cron: one call looks at what has come since, and either does nothing or does everything. The registry changes
only at the very end, and a lock of the history keeps two calls from doing the same work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from routecast.costmodel import BUILTIN, load_cost_model
from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.history import History
from routecast.datasets.measurement import Measurement
from routecast.datasets.parquet_history import builtin_histories
from routecast.datasets.places import exists, locate, shown
from routecast.datasets.records import Records
from routecast.training.drift import LEAST_MODELS, LEAST_ROUTES, Drift, drifts
from routecast.training.learned import distinct_routes, unlearned
from routecast.training.promotion import read_out_of_fold
from routecast.training.registry import SHIPPED, Registered, Registry, open_registry
from routecast.training.run import train
from routecast.training.tracking import annotate

if TYPE_CHECKING:
    from routecast.training.config import TrainConfig, TrainObserver
    from routecast.training.run import TrainOutcome

T = TypeVar("T")

PURPOSE = "retrain"
"""Of the lock."""


@dataclass(frozen=True)
class Policy:
    """When training is worth it.

    Attributes:
        min_new: new routes that are enough.
        drift: as are predictions of new routes whose error is more than this many times what it was at training, with
            95 % confidence.
    """

    min_new: int = 200
    drift: float = 1.25

    def __post_init__(self) -> None:
        """Checks the numbers."""
        if self.min_new < 1:
            raise UsageError(f"at least 1 new route must be asked for, got {self.min_new}")
        if not self.drift > 0:
            raise UsageError(f"the ratio of errors must be above 0, got {self.drift}")


@dataclass(frozen=True)
class RetrainOutcome:
    """What a retraining came to.

    Attributes:
        action: ``promoted``; ``kept``, when the champion was not beaten; ``skipped``, when training was not worth it;
            ``rolled_back``; or ``would_train``, ``would_roll_back`` of a dry run.
        reason: why, one line.
        new: routes that had not been learned from.
        drifts: errors on them beside those at training, by backend.
        champion: what predicts now: a version, ``shipped``, or empty for nothing.
        version: what was registered, empty without a training.
        run_id: in MLflow, empty without a training.
        metrics: figures of what was trained on families held out.
    """

    action: str
    reason: str
    new: int = 0
    drifts: tuple[Drift, ...] = ()
    champion: str = ""
    version: str = ""
    run_id: str = ""
    metrics: Mapping[str, float] | None = None

    def __str__(self) -> str:
        return f"{self.action.replace('_', ' ')}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form."""
        return asdict(self)


def retrain(
    history: str | Path | None = None,
    *,
    policy: Policy | None = None,
    config: TrainConfig | None = None,
    builtin: bool = True,
    dry_run: bool = False,
    observer: TrainObserver | None = None,
) -> RetrainOutcome:
    """Trains when enough has been measured or predictions have become worse, and promotes what is better.

    A route is new when neither the champion nor the cost model registered last has learned from it, so that a
    challenger that lost is not trained again before there is more to learn from.

    Args:
        history: path or URL; None is the user's own.
        policy: when training is worth it.
        config: how to train.
        builtin: whether the shipped history is learned from as well; it never counts as new.
        dry_run: only says what would be done; nothing is written or locked.
        observer: is told how training goes.

    Raises:
        UsageError: the history that was named does not exist.
        Busy: another process retrains from the same history.
        RoutecastError: the history or the MLflow store cannot be used; the champion is then unchanged.
    """
    policy = policy or Policy()
    place = locate(history)
    if not exists(place):
        if history is not None:
            raise UsageError(f"no such history: {shown(place)}")
        return RetrainOutcome("skipped", f"nothing was measured yet: there is no {shown(place)}")
    with History(history) as opened, nullcontext() if dry_run else opened.alone(PURPOSE):
        plan = _plan(opened, policy)
        if dry_run or not plan.train:
            action = "would_train" if plan.train else "skipped"
            return RetrainOutcome(action, plan.reason, plan.new, plan.drifts, plan.champion)
        outcome = train(opened, config=config, builtin=builtin, observer=observer)
        annotate(outcome.run_id, plan.metrics(), {"retrain": plan.reason, "source": opened.place})
    return _finished(plan, outcome)


def roll_back(*, dry_run: bool = False) -> RetrainOutcome:
    """Puts the previous champion back.

    Args:
        dry_run: only says what would be done.

    Raises:
        UsageError: there is nothing to go back to, or it cannot be used any more.
        RoutecastError: the MLflow store cannot be used.
    """
    registry = open_registry()
    if registry is None:
        raise UsageError("there is no champion to roll back: nothing was ever trained")
    was, now = registry.roll_back(dry_run=dry_run)
    back = _named(now)
    if dry_run:
        return RetrainOutcome("would_roll_back", f"champion {was} to {back}", champion=was)
    return RetrainOutcome("rolled_back", f"champion {was} to {back}", champion=now)


@dataclass(frozen=True)
class _Plan:
    """Whether to train, and why.

    Attributes:
        train: whether.
        reason: one line.
        new: routes that were not learned from.
        drifts: of them.
        champion: what predicts now.
    """

    train: bool
    reason: str
    new: int
    drifts: tuple[Drift, ...]
    champion: str

    def metrics(self) -> dict[str, float]:
        """Figures for the training run."""
        values = {"retrain.new": float(self.new)}
        for drift in self.drifts:
            for name, value in drift.to_json().items():
                if isinstance(value, int | float) and math.isfinite(value):
                    values[f"drift.{drift.backend}.{name}"] = float(value)
        return values


def _plan(history: History, policy: Policy) -> _Plan:
    registry = open_registry()
    champion = None if registry is None else registry.champion()
    folder = champion.folder if champion is not None else BUILTIN if (BUILTIN / "model.json").exists() else None
    new = unlearned(history.measurements(lean=True), [*([] if folder is None else [folder]), *_latest(registry)])
    routes = distinct_routes(new)
    name = "" if folder is None else SHIPPED if champion is None else champion.version
    if folder is None:
        return _decided(policy, routes, (), name)
    try:
        found = _drifts(folder, new, history)
    except UsageError as error:
        return _Plan(True, f"{_named(name)} cannot be used any more ({error})", routes, (), name)
    return _decided(policy, routes, found, name)


def _latest(registry: Registry | None) -> list[Path]:
    """Folder of the cost model that was registered last; none when its artifacts are gone."""
    try:
        latest: Registered | None = None if registry is None else registry.latest()
    except RoutecastError:
        return []
    return [] if latest is None else [latest.folder]


def _drifts(folder: Path, new: Sequence[Measurement], history: History) -> tuple[Drift, ...]:
    model = load_cost_model(folder)
    (held_out,) = read_out_of_fold(folder, ("environment",))
    shipped = [source.environment for source in builtin_histories()]
    environments = _held({*held_out, *(item.environment for item in new)}, [history.environment, *shipped])
    graphs = _held({item.fingerprint for item in new}, [history.graph])
    return tuple(drifts(model, folder, Records(list(new), graphs, environments)))


def _held(keys: Iterable[str], sources: Sequence[Callable[[str], T]]) -> dict[str, T]:
    """What the first source that holds a key has of it; what none holds is left out."""
    found: dict[str, T] = {}
    for key in keys:
        for source in sources:
            with suppress(UsageError):
                found[key] = source(key)
                break
    return found


def _decided(policy: Policy, routes: int, found: tuple[Drift, ...], champion: str) -> _Plan:
    beyond = [drift for drift in found if drift.beyond(policy.drift)]
    if routes >= policy.min_new:
        return _Plan(True, f"{routes} new routes, {policy.min_new} are enough", routes, found, champion)
    if beyond:
        said = "; ".join(map(str, beyond))
        return _Plan(True, f"{said}: beyond {policy.drift:g}", routes, found, champion)
    few = f"errors are not compared below {LEAST_ROUTES} routes of {LEAST_MODELS} models"
    said = "; ".join(map(str, found)) or few
    return _Plan(False, f"{routes} new routes of the {policy.min_new} wanted; {said}", routes, found, champion)


def _finished(plan: _Plan, outcome: TrainOutcome) -> RetrainOutcome:
    return RetrainOutcome(
        action="promoted" if outcome.promoted else "kept",
        reason=f"version {outcome.version} ({plan.reason}): {outcome.reason.removeprefix('promoted: ')}",
        new=plan.new,
        drifts=plan.drifts,
        champion=outcome.version if outcome.promoted else outcome.previous or "",
        version=outcome.version,
        run_id=outcome.run_id,
        metrics=outcome.metrics,
    )


def _named(champion: str) -> str:
    return "the shipped weights" if champion == SHIPPED else f"champion {champion}"
