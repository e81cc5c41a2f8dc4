"""HRNet: branches at several resolutions side by side, which exchange features after each stage."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from routecast.datasets.zoo.torch_modules.layers import Residual, conv


def _branch(width: int) -> nn.Sequential:
    """Returns two residual blocks at one resolution."""
    blocks = (Residual(nn.Sequential(conv(width, width), conv(width, width, activation=None))) for _ in range(2))
    return nn.Sequential(*blocks, nn.ReLU())


def _exchange(source: int, target: int, width: int) -> nn.Module:
    """Returns what brings features of branch ``source`` to the size and width of branch ``target``."""
    if source == target:
        return nn.Identity()
    if source > target:
        narrow = conv(width << source, width << target, 1, activation=None)
        return nn.Sequential(narrow, nn.Upsample(scale_factor=2 ** (source - target), mode="nearest"))
    steps = (conv(width << each, width << (each + 1), 3, 2, activation=None) for each in range(source, target))
    return nn.Sequential(*steps)


class _Stage(nn.Module):
    """All branches, then all exchanges among them; each branch adds up what reaches it."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(_branch(width << each) for each in range(count))
        self.exchanges = nn.ModuleList(
            nn.ModuleList(_exchange(source, target, width) for source in range(count)) for target in range(count)
        )

    def forward(self, features: list[Tensor]) -> list[Tensor]:
        features = [branch(each) for branch, each in zip(self.branches, features, strict=True)]
        totals = []
        for row in self.exchanges:
            assert isinstance(row, nn.ModuleList)
            parts = [step(each) for step, each in zip(row, features, strict=True)]
            totals.append(torch.relu(torch.stack(parts).sum(0)))
        return totals


class HrNet(nn.Module):
    """Finds 17 key points as heat maps at a quarter of the image's size."""

    def __init__(self, width: int, stages: int, branches: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, width, 3, 2), conv(width, width, 3, 2))
        self.split = nn.ModuleList(conv(width << each, width << (each + 1), 3, 2) for each in range(branches - 1))
        self.stages = nn.ModuleList(_Stage(width, branches) for _ in range(stages))
        self.head = nn.Conv2d(width, 17, 1)

    def forward(self, image: Tensor) -> Tensor:
        """Returns the heat maps."""
        features = [self.stem(image)]
        for split in self.split:
            features.append(split(features[-1]))
        for stage in self.stages:
            features = stage(features)
        maps: Tensor = self.head(features[0])
        return maps
