"""How to train, and who is told how it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from routecast.costmodel.network import NetworkConfig

if TYPE_CHECKING:
    from routecast.training.trainer import TrainingResult


@dataclass(frozen=True)
class TrainConfig:
    """How to train.

    Attributes:
        members: networks in the ensemble; each is trained without one fold of families.
        epochs: passes over the history at most; fixed, since stopping early would look at the fold held out.
        batch: models per step, of each process.
        steps: of each member: passes end when there were as many, but a history is passed over at least once.
        pass_steps: of one pass at most; the largest histories are passed over in part.
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
    steps: int = 1_200
    pass_steps: int = 20_000
    learning_rate: float = 2e-3
    warmup: float = 0.05
    weight_decay: float = 0.02
    clip: float = 1.0
    nominal: float = 0.9
    seed: int = 0
    network: NetworkConfig = field(default_factory=NetworkConfig)
    weights: Mapping[str, float] = field(
        default_factory=lambda: {
            "rank": 1.0, "ratio": 1.0, "loss": 10.0, "broken": 0.5, "build": 0.1,
            "default": 0.2, "local": 0.2, "local_sum": 0.1, "gap": 0.1,
        }
    )  # fmt: skip

    def passes(self, examples: int, processes: int = 1) -> int:
        """How often a history of so many examples is passed over: ``epochs``, or what ``steps`` allow, at least 1."""
        per_pass = max(1, -(-examples // (self.batch * processes)))
        return max(1, min(self.epochs, round(self.steps / per_pass)))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Reads what ``dataclasses.asdict`` gave."""
        return cls(**{**data, "network": NetworkConfig(**data["network"])})


class TrainObserver:
    """Told how training goes; the methods do nothing unless overridden."""

    def started(self, members: int, epochs: int, examples: int) -> None:
        """Training begins."""

    def epoch(self, member: int, epoch: int, losses: Mapping[str, float]) -> None:
        """A member has passed over the history once more; ``losses`` are means over the steps, by name."""

    def finished(self, result: TrainingResult) -> None:
        """Training has ended."""
