"""Causal convolutions over time: WaveNet with gates, and the plainer temporal convolutional network."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from routecast.datasets.zoo.torch_modules.layers import Residual


class CausalConv(nn.Conv1d):
    """Dilated convolution that sees the past only."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int) -> None:
        super().__init__(inputs, outputs, kernel, dilation=dilation)
        self.past = (kernel - 1) * dilation

    def forward(self, x: Tensor) -> Tensor:
        """Convolves, with zeros for what came before the signal."""
        return super().forward(functional.pad(x, (self.past, 0)))


class _GatedLayer(nn.Module):
    """Gated dilated convolution; returns what goes on and what is skipped to the output."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.dilated = CausalConv(width, 2 * width, 2, dilation)
        self.onward = nn.Conv1d(width, width, 1)
        self.skip = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        signal, gate = self.dilated(x).chunk(2, 1)
        gated = torch.tanh(signal) * torch.sigmoid(gate)
        return x + self.onward(gated), self.skip(gated)


class Wavenet(nn.Module):
    """Predicts the level of the next sample; dilation doubles up to 128 and starts again."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.enter = nn.Conv1d(1, width, 1)
        self.layers = nn.ModuleList(_GatedLayer(width, 1 << (each % 8)) for each in range(depth))
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(width, 2 * width, 1), nn.ReLU(), nn.Conv1d(2 * width, 64, 1))

    def forward(self, signal: Tensor) -> Tensor:
        """Returns the level of the next sample at each moment."""
        x = self.enter(signal)
        total = torch.zeros_like(x)
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip
        levels: Tensor = self.head(total)
        return levels


def _block(inputs: int, width: int, dilation: int) -> nn.Sequential:
    """Returns two causal convolutions with a shortcut around them."""
    body = nn.Sequential(
        CausalConv(inputs, width, 3, dilation),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        CausalConv(width, width, 3, dilation),
        nn.BatchNorm1d(width),
        nn.ReLU(),
    )
    shortcut = None if inputs == width else nn.Conv1d(inputs, width, 1)
    return nn.Sequential(Residual(body, shortcut), nn.ReLU())


class Tcn(nn.Sequential):
    """Forecasts each channel of a signal from its past; the dilation doubles with each block."""

    def __init__(self, width: int, depth: int, channels: int = 8) -> None:
        blocks = (_block(width if each else channels, width, 1 << each) for each in range(depth))
        super().__init__(*blocks, nn.Conv1d(width, channels, 1))
