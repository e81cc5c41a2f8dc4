"""Scores routes of one encoded graph with every member; token effects are computed once and kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from routecast.costmodel.base import Array
from routecast.costmodel.batch import GraphBatch, RouteBatch, TokenBatch
from routecast.costmodel.features import GraphFeatures, Integers, TextFeatures, Token, token_features
from routecast.costmodel.member import Member
from routecast.costmodel.risks import Risks
from routecast.datasets.route import Route


@dataclass(frozen=True)
class RouteTokens:
    """R routes as token indices, L settings in all.

    Attributes:
        tokens: indices into the scorer's tokens, route after route, shape (L,).
        lengths: number of settings of each route, shape (R,).
    """

    tokens: Integers
    lengths: Integers

    def sums(self, values: Array) -> Array:
        """Sum over each route's tokens of a value per token, shape (R,)."""
        owner = np.repeat(np.arange(len(self.lengths)), self.lengths)
        return np.bincount(owner, weights=values[self.tokens], minlength=len(self.lengths)).astype(np.float64)


@dataclass(frozen=True)
class MemberScores:
    """What K members say of R routes; every array has shape (K, R).

    Attributes:
        log_ratio: ln(latency / default latency).
        log_loss: accuracy loss (``repeats.log_loss``).
        broken: probability of giving no outputs at all.
        log_build: ln of the build time in seconds.
    """

    log_ratio: Array
    log_loss: Array
    broken: Array
    log_build: Array


class GraphScorer:
    """One graph on one device, encoded by K members.

    Attributes:
        log_default: ln of the default latency in ms by each member, shape (K,).
        log_local: ln of each node's local time in ms by each member, shape (K, nodes).
        gap: ln(end-to-end latency / sum of local times) by each member, shape (K,).
        tokens: the tokens met so far, in the order of their indices.
    """

    def __init__(self, members: Sequence[Member], graph: GraphFeatures, device: TextFeatures) -> None:
        """Encodes the graph."""
        batch = GraphBatch.collate([(graph, device)])
        self._networks = [member.network for member in members]
        self._risks = [member.risks for member in members]
        self._forests = [member.forest.of(graph, device) for member in members]
        with torch.inference_mode():
            self._encodings = [network.encode(batch) for network in self._networks]
        self._effects = [torch.empty(0, network.config.hidden) for network in self._networks]
        self.tokens: dict[Token, int] = {}
        self.log_default = _rows([encoding.default for encoding in self._encodings])[:, 0]
        self.log_local = _rows([encoding.local for encoding in self._encodings])
        self.gap = _rows([encoding.gap for encoding in self._encodings])[:, 0]

    def route_tokens(self, routes: Sequence[Route]) -> RouteTokens:
        """Looks up the tokens of routes, computing the effects of those not met before."""
        settings = [list(route.items()) for route in routes]
        self._learn(token for tokens in settings for token in tokens)
        index = self.tokens
        flat = [index[token] for tokens in settings for token in tokens]
        return RouteTokens(np.array(flat, np.int64), np.array([len(tokens) for tokens in settings], np.int64))

    def score(self, routes: RouteTokens) -> MemberScores:
        """Scores R routes."""
        batch = RouteBatch.collate([(routes.tokens, routes.lengths)], [len(self.tokens)])
        with torch.inference_mode():
            scores = [
                network.score(encoding, effects, batch)
                for network, encoding, effects in zip(self._networks, self._encodings, self._effects, strict=True)
            ]
            broken = [torch.sigmoid(item.broken) for item in scores]
        grown = [forest.score(tuple(self.tokens), routes.tokens, routes.lengths) for forest in self._forests]
        return MemberScores(
            log_ratio=_mean(_rows([item.log_ratio for item in scores]), [ratio for ratio, _ in grown]),
            log_loss=_mean(_rows([item.log_loss for item in scores]), [loss for _, loss in grown]),
            broken=_mean(_rows(broken), [self._risk(risks, routes) for risks in self._risks]),
            log_build=_rows([item.build for item in scores]),
        )

    def _risk(self, risks: Risks, routes: RouteTokens) -> Array:
        """Probability that each of R routes gives no outputs, counted setting by setting, shape (R,)."""
        return np.asarray(-np.expm1(routes.sums(risks.survival(self.tokens))))

    def _learn(self, tokens: Iterable[Token]) -> None:
        new = [token for token in dict.fromkeys(tokens) if token not in self.tokens]
        if not new:
            return
        self.tokens.update(zip(new, range(len(self.tokens), len(self.tokens) + len(new)), strict=True))
        batch = TokenBatch.collate([token_features(new)])
        with torch.inference_mode():
            self._effects = [
                torch.cat([effects, network.effects(encoding, batch)])
                for network, encoding, effects in zip(self._networks, self._encodings, self._effects, strict=True)
            ]


def _mean(of_networks: Array, of_others: Sequence[Array]) -> Array:
    """What members say, both parts counting alike, shape (K, R)."""
    return (of_networks + np.stack(of_others)) / 2


def _rows(tensors: Sequence[torch.Tensor]) -> Array:
    rows: Array = torch.stack(list(tensors)).double().numpy()
    return rows
