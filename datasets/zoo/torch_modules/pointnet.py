"""PointNet: the same perceptron on each point of a cloud, and the maximum over all."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn


def _shared(*widths: int) -> nn.Sequential:
    """Returns a perceptron applied to each point."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Conv1d(inputs, outputs, 1, bias=False), nn.BatchNorm1d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class PointNet(nn.Module):
    """Labels each point by its own features and those of the whole cloud."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.near = _shared(3, width, 2 * width)
        self.far = _shared(2 * width, 4 * width, 16 * width)
        self.head = nn.Sequential(_shared(18 * width, 4 * width, 2 * width), nn.Conv1d(2 * width, 8, 1))

    def forward(self, signal: Tensor) -> Tensor:
        """Returns the labels of each point."""
        near = self.near(signal)
        whole = self.far(near).amax(2, keepdim=True).expand(-1, -1, signal.shape[2])
        labels: Tensor = self.head(torch.cat((near, whole), 1))
        return labels
