"""U-Net: an encoder and a decoder of convolutions with skips between equal sizes."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from routecast.datasets.zoo.torch_modules.layers import conv


def _double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(conv(inputs, outputs), conv(outputs, outputs))


def _grow(inputs: int, outputs: int, bilinear: bool) -> nn.Module:
    """Returns what doubles the size: a learned transposed convolution, or interpolation."""
    if bilinear:
        return nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(inputs, outputs, 1))
    return nn.ConvTranspose2d(inputs, outputs, 2, 2)


class Unet(nn.Module):
    """Labels each pixel; ``levels`` times smaller and back."""

    def __init__(self, width: int, levels: int = 3, bilinear: bool = False) -> None:
        super().__init__()
        widths = [width << level for level in range(levels + 1)]
        pairs = list(pairwise(widths))
        self.enter = _double(3, width)
        self.down = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), _double(*pair)) for pair in pairs)
        self.grow = nn.ModuleList(_grow(large, small, bilinear) for small, large in reversed(pairs))
        self.merge = nn.ModuleList(_double(2 * small, small) for small, _ in reversed(pairs))
        self.leave = nn.Conv2d(width, 4, 1)

    def forward(self, image: Tensor) -> Tensor:
        """Returns four labels for each pixel."""
        skips = [self.enter(image)]
        for down in self.down:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for grow, merge in zip(self.grow, self.merge, strict=True):
            x = merge(torch.cat((skips.pop(), grow(x)), 1))
        labels: Tensor = self.leave(x)
        return labels
