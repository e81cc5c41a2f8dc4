"""Recurrent taggers: embedding, stacked LSTM or GRU layers, one label a token."""

from __future__ import annotations

from torch import Tensor, nn


class Tagger(nn.Module):
    """Labels each token of a sentence; ``cell`` names a recurrent layer of ``torch.nn``."""

    def __init__(self, cell: str, vocabulary: int, width: int, depth: int, bidirectional: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        kind: type[nn.LSTM | nn.GRU] = getattr(nn, cell)
        self.recurrent = kind(width, width, depth, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(width * (2 if bidirectional else 1), 32)

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the labels of each token."""
        states, _ = self.recurrent(self.embed(tokens))
        labels: Tensor = self.head(states)
        return labels
