"""Several graphs, their tokens and their routes laid end to end, so that one pass takes them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from routecast.costmodel.features import GraphFeatures, Integers, TextFeatures


@dataclass(frozen=True)
class GraphBatch:
    """G graphs with N nodes and E edges in all, each with its environment.

    Attributes:
        texts: shape (N, NODE_TEXTS).
        numbers: shape (N, NODE_NUMBERS).
        roofline: ln ms, shape (N,).
        edges: shape (2, E), indices into the N nodes.
        owner: the graph each node belongs to, ascending, shape (N,).
        summary: shape (G, GRAPH_NUMBERS).
        environment_texts: shape (G, ENVIRONMENT_TEXTS).
        environment_numbers: shape (G, ENVIRONMENT_NUMBERS).
    """

    texts: Tensor
    numbers: Tensor
    roofline: Tensor
    edges: Tensor
    owner: Tensor
    summary: Tensor
    environment_texts: Tensor
    environment_numbers: Tensor

    @property
    def graphs(self) -> int:
        """The number of graphs G."""
        return len(self.summary)

    @classmethod
    def collate(cls, items: Sequence[tuple[GraphFeatures, TextFeatures]]) -> GraphBatch:
        """Joins graphs, each with the environment it is encoded for."""
        graphs = [graph for graph, _ in items]
        starts = _starts([len(graph.texts) for graph in graphs])
        edges = [graph.edges + start for graph, start in zip(graphs, starts, strict=True)]
        return cls(
            texts=torch.from_numpy(np.concatenate([graph.texts for graph in graphs])),
            numbers=torch.from_numpy(np.concatenate([graph.numbers for graph in graphs])),
            roofline=torch.from_numpy(np.concatenate([graph.roofline for graph in graphs])),
            edges=torch.from_numpy(np.concatenate(edges, axis=1)),
            owner=_owners([len(graph.texts) for graph in graphs]),
            summary=torch.from_numpy(np.stack([graph.summary for graph in graphs])),
            environment_texts=torch.from_numpy(np.concatenate([item.texts for _, item in items])),
            environment_numbers=torch.from_numpy(np.concatenate([item.numbers for _, item in items])),
        )


@dataclass(frozen=True)
class TokenBatch:
    """T tokens of G graphs.

    Attributes:
        texts: shape (T, TOKEN_TEXTS).
        numbers: shape (T, TOKEN_NUMBERS).
        owner: the graph each token is asked about, ascending, shape (T,).
    """

    texts: Tensor
    numbers: Tensor
    owner: Tensor

    @classmethod
    def collate(cls, items: Sequence[TextFeatures]) -> TokenBatch:
        """Joins the tokens of several graphs, one item per graph."""
        return cls(
            texts=torch.from_numpy(np.concatenate([item.texts for item in items])),
            numbers=torch.from_numpy(np.concatenate([item.numbers for item in items])),
            owner=_owners([len(item.texts) for item in items]),
        )


@dataclass(frozen=True)
class RouteBatch:
    """R routes of G graphs as sets of tokens, L settings in all.

    Attributes:
        tokens: indices into the T tokens, route after route, shape (L,).
        offsets: where each route starts in ``tokens``, shape (R,).
        owner: the graph of each route, ascending, shape (R,).
    """

    tokens: Tensor
    offsets: Tensor
    owner: Tensor

    @classmethod
    def collate(cls, items: Sequence[tuple[Integers, Integers]], token_counts: Sequence[int]) -> RouteBatch:
        """Joins the routes of several graphs.

        Args:
            items: tokens (indices into the graph's own tokens) and lengths of routes, one pair per graph.
            token_counts: the number of tokens of each graph.
        """
        starts = _starts(token_counts)
        lengths = np.concatenate([lengths for _, lengths in items])
        tokens = np.concatenate([tokens + start for (tokens, _), start in zip(items, starts, strict=True)])
        return cls(
            tokens=torch.from_numpy(tokens),
            offsets=torch.from_numpy(_starts(lengths)),
            owner=_owners([len(lengths) for _, lengths in items]),
        )


def _starts(lengths: Sequence[int] | Integers) -> Integers:
    """Where each of several runs laid end to end begins."""
    return np.cumsum([0, *lengths[:-1]], dtype=np.int64)


def _owners(lengths: Sequence[int]) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths, dtype=torch.int64))
