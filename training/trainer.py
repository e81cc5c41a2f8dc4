"""Trains an ensemble on a history, each member without some families, and calibrates it on those."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch

from routecast.costmodel.calibration import Calibration
from routecast.costmodel.ensemble import Ensemble
from routecast.costmodel.familiarity import Familiarity, powers, seen_versions
from routecast.costmodel.network import NetworkConfig, RouteNetwork
from routecast.datasets.errors import UsageError
from routecast.datasets.records import Records
from routecast.datasets.splits import family_folds
from routecast.training.examples import Example, collate, make_examples
from routecast.training.losses import losses
from routecast.training.out_of_fold import OutOfFold, figures
from routecast.training.predictions import predict_held_out

_UNKNOWN_LATENCY = 1.0


@dataclass(frozen=True)
class TrainConfig:
    """How to train.

    Attributes:
        members: networks in the ensemble; each is trained without one fold of families.
        epochs: passes over the history; fixed, since stopping early would look at the fold held out.
        batch: models per step.
        learning_rate: its peak; it warms up linearly and then falls along a cosine to 0.
        warmup: share of the steps spent warming up.
        weight_decay: of AdamW.
        clip: greatest norm of the gradient.
        nominal: share of the truths that intervals are to hold.
        seed: of everything random.
        network: sizes of each member.
        weights: of the losses, by name.
    """

    members: int = 5
    epochs: int = 150
    batch: int = 8
    learning_rate: float = 2e-3
    warmup: float = 0.05
    weight_decay: float = 0.02
    clip: float = 1.0
    nominal: float = 0.9
    seed: int = 0
    network: NetworkConfig = field(default_factory=NetworkConfig)
    weights: Mapping[str, float] = field(
        default_factory=lambda: {
            "rank": 1.0, "ratio": 1.0, "failure": 0.5, "build": 0.1,
            "default": 0.2, "local": 0.2, "local_sum": 0.1, "gap": 0.1,
        }
    )  # fmt: skip


class TrainObserver:
    """Told how training goes; the methods do nothing unless overridden."""

    def started(self, members: int, epochs: int, examples: int) -> None:
        """Training begins."""

    def epoch(self, member: int, epoch: int, losses: Mapping[str, float]) -> None:
        """A member has passed over the history once more; ``losses`` are means over the steps, by name."""

    def finished(self, result: TrainingResult) -> None:
        """Training has ended."""


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


def train_ensemble(
    records: Records, config: TrainConfig | None = None, observer: TrainObserver | None = None
) -> TrainingResult:
    """Trains an ensemble.

    The families are dealt into as many folds as there are members, or as there are families when those are
    fewer; member k never sees fold k. The same records, configuration and number of torch threads give the
    same weights.

    Raises:
        UsageError: the records hold no measurement to learn from.
    """
    config, observer = config or TrainConfig(), observer or TrainObserver()
    examples = make_examples(records)
    if not any(np.isfinite(example.log_ratio).any() for example in examples):
        raise UsageError("nothing to train on: no route in the history was timed; run `routecast collect`")
    folds = _folds(examples, config)
    observer.started(config.members, config.epochs, len(examples))
    members = []
    for index in range(config.members):
        held = folds[index % len(folds)]
        known = [example for example in examples if example.family not in held]
        members.append(_train_member(known, config, index, observer))
    out_of_fold = predict_held_out(members, folds, examples, config.nominal)
    metrics = figures(out_of_fold)
    model = Ensemble(
        members=members,
        ratio=_ratio_calibration(out_of_fold, examples, config.nominal),
        default=_default_calibration(out_of_fold, config.nominal),
        familiarity=_familiarity(records, examples, calibrated=len(out_of_fold.routes.timed) > 0),
        training=_provenance(records, examples, config),
        metrics=metrics,
    )
    result = TrainingResult(model, out_of_fold, metrics)
    observer.finished(result)
    return result


def _folds(examples: Sequence[Example], config: TrainConfig) -> list[frozenset[str]]:
    """Families each member must not see; one empty fold when there is only one family."""
    families = [example.family for example in examples for _ in example.routes]
    distinct = len(set(families))
    if distinct < 2 or config.members < 2:
        return [frozenset()]
    return list(family_folds(families, min(config.members, distinct), config.seed))


def _train_member(
    examples: Sequence[Example], config: TrainConfig, index: int, observer: TrainObserver
) -> RouteNetwork:
    """Trains one network, and rounds its weights to what is stored."""
    seed = config.seed * 1000 + index
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = RouteNetwork(config.network)
        optimiser = torch.optim.AdamW(network.parameters(), config.learning_rate, weight_decay=config.weight_decay)
        per_epoch = math.ceil(len(examples) / config.batch)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, _Schedule(per_epoch * config.epochs, config.warmup))
        for epoch in range(config.epochs):
            order = rng.permutation(len(examples))
            batches = [
                [examples[int(place)] for place in order[start : start + config.batch]]
                for start in range(0, len(order), config.batch)
            ]
            steps = [_step(network, batch, optimiser, schedule, config) for batch in batches]
            observer.epoch(index, epoch, {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]})
    return network.half().float().eval()


@dataclass(frozen=True)
class _Schedule:
    """Share of the peak learning rate at each step: linear warm-up, then a cosine to 0."""

    steps: int
    warmup: float

    def __call__(self, step: int) -> float:
        warm = max(1.0, self.warmup * self.steps)
        if step < warm:
            return (step + 1) / (warm + 1)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / max(1.0, self.steps - warm))))


def _step(
    network: RouteNetwork,
    examples: Sequence[Example],
    optimiser: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LambdaLR,
    config: TrainConfig,
) -> dict[str, float]:
    """One step of the optimiser; each loss by name."""
    batch = collate(examples)
    encoding = network.encode(batch.graphs)
    scores = network.score(encoding, network.effects(encoding, batch.tokens), batch.routes)
    found = losses(encoding, scores, batch.routes.owner, batch.targets)
    total = torch.stack([config.weights[name] * loss for name, loss in found.items()]).sum()
    optimiser.zero_grad()
    total.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip)
    optimiser.step()
    schedule.step()
    return {name: float(loss.detach()) for name, loss in found.items()}


def _ratio_calibration(found: OutOfFold, examples: Sequence[Example], nominal: float) -> Calibration:
    rows, timed = found.routes, found.routes.timed
    if not len(timed):
        return Calibration.guess(_spread(examples), nominal=nominal)
    return Calibration.fit(rows.predicted[timed], rows.log_ratio[timed], nominal=nominal, scaled=True)


def _default_calibration(found: OutOfFold, nominal: float) -> Calibration:
    rows = found.models
    known = ~np.isnan(rows.log_default)
    if not known.any():
        return Calibration.guess(_UNKNOWN_LATENCY, nominal=nominal)
    return Calibration.fit(rows.predicted[known], rows.log_default[known], nominal=nominal, scaled=False)


def _spread(examples: Sequence[Example]) -> float:
    """Standard deviation of the measured log ratios."""
    return float(np.nanstd(np.concatenate([example.log_ratio for example in examples])))


def _familiarity(records: Records, examples: Sequence[Example], *, calibrated: bool) -> Familiarity:
    environments = [records.environments[example.environment] for example in examples]
    return Familiarity(
        ops=frozenset(op for example in examples for op in records.graphs[example.fingerprint].ops),
        settings=frozenset(f"{name}={value}" for example in examples for name, value in example.tokens),
        backends=frozenset(item.backend for item in environments),
        devices={f"{item.backend}/{item.device}": powers(item) for item in environments},
        families=frozenset(example.family for example in examples),
        measurements=len(records.measurements),
        models=len({example.fingerprint for example in examples}),
        spread=_spread(examples),
        calibrated=calibrated,
        versions=seen_versions(environments),
    )


def _provenance(records: Records, examples: Sequence[Example], config: TrainConfig) -> dict[str, Any]:
    return {
        "digest": records.digest(),
        "examples": len(examples),
        "config": asdict(config),
        "versions": {name: _version(name) for name in ("routecast", "torch", "torch-geometric")},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
