"""Trains one network of the ensemble, alone or as one of several processes that share each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from routecast.costmodel.features import Integers
from routecast.costmodel.network import RouteNetwork
from routecast.training.config import TrainConfig, TrainObserver
from routecast.training.examples import Batch, collate
from routecast.training.losses import losses
from routecast.training.store import ExampleStore


@dataclass(frozen=True)
class Team:
    """The processes that train together, connected by torch.distributed when there are several.

    Attributes:
        rank: number of this process.
        size: how many there are.
        device: where this one computes.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def share(self, order: Integers) -> Integers:
        """This process's part; the first few are dealt twice when the parts would differ in length."""
        return np.resize(order, -(-len(order) // self.size) * self.size)[self.rank :: self.size]

    def joined(self, module: nn.Module) -> nn.Module:
        """The module, with gradients averaged over the processes."""
        return module if self.size == 1 else DistributedDataParallel(module)

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the processes."""
        if self.size > 1:
            distributed.all_reduce(values)
        return values / self.size


class _Objective(nn.Module):
    """The losses of a batch by name: what is differentiated, as one module."""

    def __init__(self, network: RouteNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Encodes the graphs, scores the routes, compares with the truth."""
        encoding = self.network.encode(batch.graphs)
        scores = self.network.score(encoding, self.network.effects(encoding, batch.tokens), batch.routes)
        return dict(losses(encoding, scores, batch.routes.owner, batch.targets))


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


def train_member(
    store: ExampleStore,
    held: frozenset[str],
    config: TrainConfig,
    index: int,
    observer: TrainObserver,
    team: Team | None = None,
) -> RouteNetwork:
    """Trains one network, and rounds its weights to what is stored.

    Every process of a team gets the same network.

    Args:
        store: the examples.
        held: families that it must not see.
        config: how to train.
        index: number of the member.
        observer: is told of each epoch, with the losses averaged over the processes.
        team: the processes; None for this one alone, on the CPU.
    """
    team = team or Team()
    seed = config.seed * 1000 + index
    rng = np.random.default_rng(seed)
    known = np.array([place for place, family in enumerate(store.families) if family not in held], np.int64)
    passes = config.passes(len(store), team.size)
    per_pass = min(config.pass_steps, math.ceil(len(known) / (config.batch * team.size)))
    with torch.random.fork_rng(devices=[team.device] if team.device.type == "cuda" else []):
        torch.manual_seed(seed)
        network = RouteNetwork(config.network).to(team.device)
        objective = team.joined(_Objective(network))
        if team.rank:
            torch.manual_seed(seed + 1_000_003 * team.rank)  # dropout is to differ between processes
        optimiser = torch.optim.AdamW(network.parameters(), config.learning_rate, weight_decay=config.weight_decay)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, _Schedule(per_pass * passes, config.warmup))
        for epoch in range(passes):
            order = team.share(known[rng.permutation(len(known))])
            total: dict[str, Tensor] = {}
            for step in range(per_pass):
                places = order[step * config.batch : (step + 1) * config.batch]
                for name, loss in _step(objective, _batch(store, places, team), optimiser, schedule, config).items():
                    total[name] = total[name] + loss if step else loss
            means = team.mean(torch.stack(list(total.values())) / per_pass)
            observer.epoch(index, epoch, dict(zip(total, means.tolist(), strict=True)))
    return network.cpu().half().float().eval()


def _batch(store: ExampleStore, places: Sequence[int] | Integers, team: Team) -> Batch:
    return collate([store[int(place)] for place in places]).to(team.device)


def _step(
    objective: nn.Module,
    batch: Batch,
    optimiser: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LambdaLR,
    config: TrainConfig,
) -> dict[str, Tensor]:
    """One step of the optimiser; each loss by name."""
    found = objective(batch)
    total = torch.stack([config.weights[name] * loss for name, loss in found.items()]).sum()
    optimiser.zero_grad()
    total.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(objective.parameters(), config.clip)
    optimiser.step()
    schedule.step()
    return {name: loss.detach() for name, loss in found.items()}
