"""Transformers over tokens: an encoder in the manner of BERT and a causal decoder in that of GPT."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from routecast.datasets.zoo.torch_modules.layers import Attention, Residual, encoder_block, mlp


class _Embedding(nn.Module):
    """Embeds tokens and their positions."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(length, width))

    def forward(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.token(tokens) + self.position
        return embedded


def _post_norm_block(width: int, heads: int) -> nn.Sequential:
    """Returns a block that normalises after each step, as the first transformers did."""
    return nn.Sequential(
        Residual(Attention(width, heads)),
        nn.LayerNorm(width),
        Residual(mlp(width, 4 * width, width, activation=nn.GELU)),
        nn.LayerNorm(width),
    )


class Bert(nn.Sequential):
    """Encoder that labels each token."""

    def __init__(self, vocabulary: int, length: int, width: int, depth: int, heads: int) -> None:
        blocks = (_post_norm_block(width, heads) for _ in range(depth))
        embedding = (_Embedding(vocabulary, length, width), nn.LayerNorm(width))
        super().__init__(*embedding, *blocks, nn.Linear(width, 16))


class Gpt(nn.Sequential):
    """Causal decoder that predicts the next token."""

    def __init__(self, vocabulary: int, length: int, width: int, depth: int, heads: int) -> None:
        blocks = (encoder_block(width, heads, causal=True) for _ in range(depth))
        head = (nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False))
        super().__init__(_Embedding(vocabulary, length, width), *blocks, *head)
