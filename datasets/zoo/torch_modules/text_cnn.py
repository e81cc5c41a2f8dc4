"""Text classifier: convolutions of several widths side by side, the maximum of each over the text."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TextCnn(nn.Module):
    """Classifies a text of token ids."""

    def __init__(self, vocabulary: int, width: int, filters: int, kernels: tuple[int, ...] = (2, 3, 4, 5, 7)) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.branches = nn.ModuleList(nn.Sequential(nn.Conv1d(width, filters, each), nn.ReLU()) for each in kernels)
        self.head = nn.Linear(filters * len(kernels), 20)

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the logits of each text."""
        text = self.embed(tokens).transpose(1, 2)
        peaks = torch.cat([branch(text).amax(2) for branch in self.branches], 1)
        logits: Tensor = self.head(peaks)
        return logits
