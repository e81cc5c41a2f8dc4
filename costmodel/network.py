"""The graph neural network that predicts what routes do to a model on a device.

A graph is encoded once (``encode``). Each token of a route, a knob's value, then looks at the graph's nodes and
becomes its effect in this graph (``effects``). Routes are sets of effects (``score``), so scoring one costs a sum and
a small head, whatever the size of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import scatter, softmax, to_dense_batch

from routecast.costmodel.batch import GraphBatch, RouteBatch, TokenBatch
from routecast.costmodel.features import ENVIRONMENT_NUMBERS, GRAPH_NUMBERS, NODE_NUMBERS, TOKEN_NUMBERS
from routecast.costmodel.texts import BUCKETS


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes of the network.

    Attributes:
        hidden: width of nodes, effects and summaries.
        text: width of a text's embedding.
        layers: rounds of message passing.
        heads: attention heads of a token over the nodes; half focus, half weigh by time.
        pair: width of the space in which tokens interact.
        dropout: share of activations dropped in training.
    """

    hidden: int = 64
    text: int = 32
    layers: int = 3
    heads: int = 4
    pair: int = 32
    dropout: float = 0.1


@dataclass(frozen=True)
class Encoding:
    """G encoded graphs of N nodes in all.

    Attributes:
        states: shape (N, hidden).
        owner: the graph of each node, shape (N,).
        shares: each node's share of its graph's predicted local time, shape (N,).
        summary: shape (G, hidden).
        local: ln of the local time of each node under the default route in ms, shape (N,).
        local_sum: ln of their sum, shape (G,).
        gap: ln(end-to-end latency / sum of local times), shape (G,).
    """

    states: Tensor
    owner: Tensor
    shares: Tensor
    summary: Tensor
    local: Tensor
    local_sum: Tensor
    gap: Tensor

    @property
    def default(self) -> Tensor:
        """ln of the default route's end-to-end latency in ms, shape (G,)."""
        return self.local_sum + self.gap


@dataclass(frozen=True)
class Scores:
    """What the network says of R routes.

    Attributes:
        log_ratio: ln(latency / default latency), exactly 0 for the default route, shape (R,).
        failure: logit of the probability that the route does not end ok, shape (R,).
        build: ln of the build time in seconds, shape (R,).
    """

    log_ratio: Tensor
    failure: Tensor
    build: Tensor


def _mlp(inputs: int, hidden: int, outputs: int, dropout: float, scale: float = 1.0) -> nn.Sequential:
    last = nn.Linear(hidden, outputs)
    with torch.no_grad():
        last.weight.mul_(scale)
        last.bias.zero_()
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Dropout(dropout), last)


class RouteNetwork(nn.Module):
    """Graph, route and environment in; log ratio, failure, build time, default latency and local times out."""

    def __init__(self, config: NetworkConfig) -> None:
        """Builds the layers, initialised from torch's global random state."""
        super().__init__()
        self.config = config
        self.texts = nn.EmbeddingBag(BUCKETS, config.text, mode="sum", padding_idx=0)
        nn.init.normal_(self.texts.weight, std=0.1)
        self.encoder = GraphEncoder(config, self.texts)
        self.reader = TokenReader(config, self.texts)
        self.head = RouteHead(config)

    def encode(self, batch: GraphBatch) -> Encoding:
        """Encodes graphs."""
        encoding: Encoding = self.encoder(batch)
        return encoding

    def effects(self, encoding: Encoding, tokens: TokenBatch) -> Tensor:
        """What each token does in its graph, shape (T, hidden)."""
        effects: Tensor = self.reader(encoding, tokens)
        return effects

    def score(self, encoding: Encoding, effects: Tensor, routes: RouteBatch) -> Scores:
        """Scores routes from the effects of their tokens."""
        scores: Scores = self.head(encoding.summary, effects, routes)
        return scores


class GraphEncoder(nn.Module):
    """Message passing along and against the edges, then pooling.

    One layer is h <- h + dropout(gelu(norm(W1 h + W2 mean(h of producers) + W3 mean(h of consumers)))), with
    GraphSAGE's convolution (Hamilton et al., "Inductive representation learning on large graphs", 2017).

    The environment enters by one linear layer that starts at zero: a device unlike all those seen then moves the
    prediction as far as it resembles them, and no further.
    """

    def __init__(self, config: NetworkConfig, texts: nn.EmbeddingBag) -> None:
        """Shares the text embeddings with the other parts."""
        super().__init__()
        hidden, dropout = config.hidden, config.dropout
        self.texts = texts
        self.environment = nn.Linear(config.text + ENVIRONMENT_NUMBERS, hidden, bias=False)
        nn.init.zeros_(self.environment.weight)
        self.input = _mlp(config.text + NODE_NUMBERS, hidden, hidden, dropout)
        self.downstream = nn.ModuleList(SAGEConv(hidden, hidden) for _ in range(config.layers))
        self.upstream = nn.ModuleList(SAGEConv(hidden, hidden, root_weight=False) for _ in range(config.layers))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(config.layers))
        self.dropout = nn.Dropout(dropout)
        self.local = _mlp(hidden, hidden, 1, dropout, scale=0.1)
        self.attention = nn.Linear(hidden, 1)
        self.pool = nn.Sequential(nn.Linear(4 * hidden + GRAPH_NUMBERS, hidden), nn.GELU(), nn.LayerNorm(hidden))
        self.gap = _mlp(hidden, hidden, 1, dropout, scale=0.1)

    def forward(self, batch: GraphBatch) -> Encoding:
        """Encodes the graphs of a batch."""
        numbers = [self.texts(batch.environment_texts), batch.environment_numbers]
        environment = self.environment(torch.cat(numbers, 1))
        states = self.input(torch.cat([self.texts(batch.texts), batch.numbers], 1)) + environment[batch.owner]
        for downstream, upstream, norm in zip(self.downstream, self.upstream, self.norms, strict=True):
            message = downstream(states, batch.edges) + upstream(states, batch.edges.flip(0))
            states = states + self.dropout(functional.gelu(norm(message)))
        local = batch.roofline + self.local(states).squeeze(1)
        shares = softmax(local.detach(), batch.owner, num_nodes=batch.graphs)
        summary = self._pool(states, shares, batch) + environment
        return Encoding(
            states, batch.owner, shares, summary, local, _log_sum(local, batch), self.gap(summary).squeeze(1)
        )

    def _pool(self, states: Tensor, shares: Tensor, batch: GraphBatch) -> Tensor:
        """Attention, time-weighted sum, mean and maximum over nodes beside the graph's figures, shape (G, hidden)."""
        attention = softmax(self.attention(states), batch.owner, num_nodes=batch.graphs)
        weighted = torch.cat([attention * states, shares[:, None] * states], 1)
        pooled = [
            scatter(weighted, batch.owner, dim_size=batch.graphs, reduce="sum"),
            scatter(states, batch.owner, dim_size=batch.graphs, reduce="mean"),
            scatter(states, batch.owner, dim_size=batch.graphs, reduce="max"),
            batch.summary,
        ]
        summary: Tensor = self.pool(torch.cat(pooled, 1))
        return summary


def _log_sum(local: Tensor, batch: GraphBatch) -> Tensor:
    """ln of the sum of exp(local) over each graph's nodes, shape (G,)."""
    peak = scatter(local.detach(), batch.owner, dim_size=batch.graphs, reduce="max")
    total = scatter(torch.exp(local - peak[batch.owner]), batch.owner, dim_size=batch.graphs, reduce="sum")
    return peak + torch.log(total)


class TokenReader(nn.Module):
    """Multi-head attention of a token over the nodes of one graph.

    Focusing heads weigh the nodes by softmax(q.k) beside an empty slot of logit 0, so that a token whose operators the
    graph lacks reads nothing. Weighing heads use share(node) * sigmoid(q.k): a change of each node's time, weighted
    by its share of the time, which is how local effects add up to an end-to-end ratio.
    """

    def __init__(self, config: NetworkConfig, texts: nn.EmbeddingBag) -> None:
        """Shares the text embeddings with the other parts."""
        super().__init__()
        hidden = config.hidden
        self.heads = config.heads
        self.texts = texts
        self.token = _mlp(config.text + TOKEN_NUMBERS, hidden, hidden, config.dropout)
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.effect = _mlp(3 * hidden, hidden, hidden, config.dropout)

    def forward(self, encoding: Encoding, tokens: TokenBatch) -> Tensor:
        """Effects of the tokens, shape (T, hidden)."""
        states = self.token(torch.cat([self.texts(tokens.texts), tokens.numbers], 1))
        read = self._attend(states, tokens.owner, encoding)
        effects: Tensor = self.effect(torch.cat([states, read, encoding.summary[tokens.owner]], 1))
        return effects

    def _attend(self, states: Tensor, owner: Tensor, encoding: Encoding) -> Tensor:
        """What each token reads from its graph's nodes, shape (T, hidden)."""
        graphs = len(encoding.summary)
        query, asked = to_dense_batch(self.query(states), owner, batch_size=graphs)
        key, present = to_dense_batch(self.key(encoding.states), encoding.owner, batch_size=graphs)
        value, _ = to_dense_batch(self.value(encoding.states), encoding.owner, batch_size=graphs)
        shares, _ = to_dense_batch(encoding.shares, encoding.owner, batch_size=graphs)
        query, key, value = self._split(query), self._split(key), self._split(value)
        logits = query @ key.transpose(2, 3) / key.shape[-1] ** 0.5
        focus, weigh = logits.chunk(2, dim=1)
        focus = focus.masked_fill(~present[:, None, None, :], float("-inf"))
        focus = torch.softmax(functional.pad(focus, (1, 0)), dim=-1)[..., 1:]
        weights = torch.cat([focus, torch.sigmoid(weigh) * shares[:, None, None, :]], 1)
        read = (weights @ value).transpose(1, 2).flatten(2)
        return read[asked]

    def _split(self, dense: Tensor) -> Tensor:
        """Splits (G, length, hidden) into (G, heads, length, hidden / heads)."""
        return dense.unflatten(2, (self.heads, -1)).transpose(1, 2)


class RouteHead(nn.Module):
    """Predicts from the set of a route's effects z and the summary g of its graph.

    With s = sum of z, and p = ((sum of Pz)^2 - sum of (Pz)^2) / 2, which holds every pair of tokens once (Rendle,
    "Factorization machines", 2010), the outputs are As + Bp + C gelu(Ds + Ep + Fg); from the log ratio that of the
    empty set is taken away.
    """

    def __init__(self, config: NetworkConfig) -> None:
        """Builds the layers."""
        super().__init__()
        hidden, pair, outputs = config.hidden, config.pair, 3
        self.interact = nn.Linear(hidden, pair, bias=False)
        self.linear = nn.Linear(hidden + pair, outputs, bias=False)
        self.route = nn.Linear(hidden + pair, hidden, bias=False)
        self.graph = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(config.dropout)
        self.last = nn.Linear(hidden, outputs)
        with torch.no_grad():
            self.linear.weight.mul_(0.1)
            self.last.weight.mul_(0.1)
            self.last.bias.zero_()

    def forward(self, summary: Tensor, effects: Tensor, routes: RouteBatch) -> Scores:
        """Scores R routes."""
        projected = self.interact(effects)
        columns = torch.cat([effects, projected, projected.square()], 1)
        sums = functional.embedding_bag(routes.tokens, columns, routes.offsets, mode="sum")
        pair = projected.shape[1]
        total, linear, squares = sums.split([effects.shape[1], pair, pair], 1)
        route = torch.cat([total, (linear.square() - squares) / 2], 1)
        context = self.graph(summary)
        outputs = self.linear(route) + self.last(self.dropout(functional.gelu(self.route(route) + context[routes.owner])))
        empty = self.last(functional.gelu(context))[routes.owner, 0]
        return Scores(torch.where(_empty(routes), 0.0, outputs[:, 0] - empty), outputs[:, 1], outputs[:, 2])


def _empty(routes: RouteBatch) -> Tensor:
    """Which routes set no knob, shape (R,)."""
    ends = torch.cat([routes.offsets[1:], routes.offsets.new_tensor([len(routes.tokens)])])
    return ends == routes.offsets
