"""Vision transformer: image patches as tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from routecast.datasets.zoo.torch_modules.layers import encoder_block


class Vit(nn.Module):
    """Classifies an image by a class token that attends to its patches."""

    def __init__(self, width: int, depth: int, size: int, patch: int) -> None:
        super().__init__()
        count = (size // patch) ** 2
        self.patches = nn.Sequential(nn.Conv2d(3, width, patch, patch), nn.Flatten(2))
        self.label = nn.Parameter(torch.randn(1, 1, width))
        self.position = nn.Parameter(0.5 * torch.randn(count + 1, width))
        self.blocks = nn.Sequential(*(encoder_block(width, width // 32) for _ in range(depth)), nn.LayerNorm(width))
        self.head = nn.Linear(width, 100)

    def forward(self, image: Tensor) -> Tensor:
        """Returns the logits of each image."""
        patches = self.patches(image).transpose(1, 2)
        labels = self.label.expand(image.shape[0], -1, -1)
        tokens = self.blocks(torch.cat((labels, patches), 1) + self.position)
        logits: Tensor = self.head(tokens[:, 0])
        return logits
