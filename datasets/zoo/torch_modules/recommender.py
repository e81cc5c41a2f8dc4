"""Click predictors: embeddings of categories crossed with each other, and perceptrons."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from routecast.datasets.zoo.torch_modules.layers import mlp

_DENSE = 13


class Dlrm(nn.Module):
    """One table for each category; products of all pairs of embeddings feed a perceptron."""

    def __init__(self, fields: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(fields))
        self.bottom = mlp(_DENSE, 256, 128, width)
        self.first, self.second = torch.triu_indices(fields + 1, fields + 1, 1).unbind(0)
        self.top = mlp(width + len(self.first), 256, 128, 1)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """Returns one score for each row."""
        bottom = self.bottom(dense)
        embedded = [table(sparse[:, field]) for field, table in enumerate(self.tables)]
        vectors = torch.stack([bottom, *embedded], 1)
        products = (vectors @ vectors.transpose(1, 2))[:, self.first, self.second]
        scores: Tensor = self.top(torch.cat((bottom, products / vectors.shape[2] ** 0.5), 1))
        return scores


class DeepFm(nn.Module):
    """A factorisation machine beside a perceptron, on the embeddings of one shared table."""

    def __init__(self, fields: int, rows: int, width: int) -> None:
        super().__init__()
        self.rows = rows
        self.table = nn.Embedding(fields * rows, width)
        self.offsets = nn.Buffer(torch.arange(fields) * rows)
        self.deep = mlp(fields * width + _DENSE, 256, 256, 128, 1)
        self.wide = nn.Linear(_DENSE, 1)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """Returns one score for each row."""
        vectors = self.table(sparse + self.offsets)
        # The sum over all pairs of products is half of (square of the sum less sum of the squares).
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).mean(1, keepdim=True) / vectors.shape[1]
        deep = self.deep(torch.cat((vectors.flatten(1), dense), 1))
        scores: Tensor = deep + self.wide(dense) + pairs
        return scores
