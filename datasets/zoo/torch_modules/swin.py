"""Transformer with attention inside shifted windows, and merging of patches between its stages."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from routecast.datasets.zoo.torch_modules.layers import Attention, mlp, pre_norm

_WINDOW = 4


class WindowAttention(nn.Module):
    """Attention within windows of ``(batch, size, size, width)``, rolled by ``shift`` first.

    Windows at the border see both edges of the image: the mask against that is left out for simplicity.
    """

    def __init__(self, width: int, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.attention = Attention(width, width // 16)

    def forward(self, x: Tensor) -> Tensor:
        """Attends within each window."""
        batch, size, _, width = x.shape
        count = size // _WINDOW
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        x = x.reshape(batch, count, _WINDOW, count, _WINDOW, width).transpose(2, 3)
        x = self.attention(x.reshape(-1, _WINDOW**2, width))
        x = x.reshape(batch, count, count, _WINDOW, _WINDOW, width).transpose(2, 3)
        x = x.reshape(batch, size, size, width)
        return torch.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x


class PatchMerging(nn.Module):
    """Joins each two by two patches into one of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.reduce = nn.Sequential(nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        """Halves the size and doubles the width."""
        corners = (x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2])
        merged: Tensor = self.reduce(torch.cat(corners, -1))
        return merged


class Swin(nn.Module):
    """Two stages of windowed attention, at a quarter and an eighth of the image's size."""

    def __init__(self, width: int, depth: int, size: int) -> None:
        super().__init__()
        if size % (8 * _WINDOW):
            raise ValueError(f"size must be a multiple of {8 * _WINDOW}, got {size}")
        self.patches = nn.Conv2d(3, width, 4, 4)
        stages = (self._stage(width, depth), PatchMerging(width), self._stage(2 * width, depth))
        self.stages = nn.Sequential(*stages, nn.LayerNorm(2 * width))
        self.head = nn.Linear(2 * width, 100)

    @staticmethod
    def _stage(width: int, depth: int) -> nn.Sequential:
        steps: list[nn.Module] = []
        for block in range(depth):
            steps.append(pre_norm(width, WindowAttention(width, _WINDOW // 2 * (block % 2))))
            steps.append(pre_norm(width, mlp(width, 4 * width, width, activation=nn.GELU)))
        return nn.Sequential(*steps)

    def forward(self, image: Tensor) -> Tensor:
        """Returns the logits of each image."""
        x = self.stages(self.patches(image).permute(0, 2, 3, 1))
        logits: Tensor = self.head(x.mean((1, 2)))
        return logits
