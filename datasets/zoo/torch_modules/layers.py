"""Layers that several architectures share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

Activation = Callable[[], nn.Module]


class Residual(nn.Module):
    """Adds its input to what ``body`` makes of it, brought to the same shape by ``shortcut``."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Adds both ways around."""
        total: Tensor = self.shortcut(x) + self.body(x)
        return total


class Transposed(nn.Module):
    """Applies ``body`` with two axes of its input exchanged."""

    def __init__(self, body: nn.Module, first: int = 1, second: int = 2) -> None:
        super().__init__()
        self.body = body
        self.axes = (first, second)

    def forward(self, x: Tensor) -> Tensor:
        """Applies the body between two transpositions."""
        y: Tensor = self.body(x.transpose(*self.axes))
        return y.transpose(*self.axes)


class Scaled(nn.Module):
    """Multiplies what ``body`` makes by a constant."""

    def __init__(self, body: nn.Module, factor: float) -> None:
        super().__init__()
        self.body = body
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Scales what the body makes."""
        scaled: Tensor = self.factor * self.body(x)
        return scaled


class Attention(nn.Module):
    """Multi-head self-attention over ``(batch, length, width)``."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Mixes each position with those that it attends to."""
        batch, length, width = x.shape
        split = self.project(x).reshape(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5
        if self.causal:
            future = torch.ones(length, length, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, -1e4)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, width)
        result: Tensor = self.out(mixed)
        return result


def conv(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    stride: int = 1,
    *,
    groups: int = 1,
    activation: Activation | None = nn.ReLU,
) -> nn.Sequential:
    """Returns a convolution that keeps the size (but for the stride), normalised and activated."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    if activation is not None:
        layers.append(activation())
    return nn.Sequential(*layers)


def mlp(*widths: int, activation: Activation = nn.ReLU) -> nn.Sequential:
    """Returns linear layers of these widths with activations between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


def pre_norm(width: int, body: nn.Module) -> nn.Module:
    """Returns a residual step that normalises what goes into ``body``."""
    return Residual(nn.Sequential(nn.LayerNorm(width), body))


def encoder_block(width: int, heads: int, causal: bool = False) -> nn.Sequential:
    """Returns a transformer block that normalises before each step."""
    return nn.Sequential(
        pre_norm(width, Attention(width, heads, causal)),
        pre_norm(width, mlp(width, 4 * width, width, activation=nn.GELU)),
    )


def classifier(width: int, classes: int = 100) -> nn.Sequential:
    """Returns the usual end of an image classifier: average, then one linear layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))
