"""The graph neural network that predicts what routes do to a model on a device.

A graph is encoded once (``encode``). Each token of a route, a knob's value, then looks at the graph's nodes
and becomes its effect in this graph (``effects``). Routes are sets of effects (``score``), so scoring one
costs a sum and a small head, whatever the size of the graph.
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
from routecast.costmodel.repeats import LOSS_UNIT
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
        """Logarithm of the default route's end-to-end latency in ms, shape (G,)."""
        return self.local_sum + self.gap


@dataclass(frozen=True)
class Scores:
    """What the network says of R routes.

    Attributes:
        log_ratio: ln(latency / default latency), exactly 0 for the default route, shape (R,).
        broken: logit of the probability that the route gives no outputs at all, shape (R,).
        log_loss: accuracy loss (``repeats.log_loss``), exactly 0 for the default route, shape (R,).
        build: ln of the build time in seconds, shape (R,).
    """

    log_ratio: Tensor
    broken: Tensor
    log_loss: Tensor
    build: Tensor


def _mlp(inputs: int, hidden: int, outputs: int, dropout: float, scale: float = 1.0) -> nn.Sequential:
    last = nn.Linear(hidden, outputs)
    with torch.no_grad():
        last.weight.mul_(scale)
        last.bias.zero_()
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Dropout(dropout), last)


class RouteNetwork(nn.Module):
    """Graph, route and environment in; ratio, accuracy, failure, build time, default latency and local times out."""

    def __init__(self, config: NetworkConfig) -> None:
        """Builds the layers, initialised from torch's global random state."""
        super().__init__()
        self.config = config
        self.texts = nn.EmbeddingBag(BUCKETS, config.text, mode="sum", padding_idx=0)
        nn.init.normal_(self.texts.weight, std=0.1)
        self.encoder = GraphEncoder(config)
        self.reader = TokenReader(config)
        self.head = RouteHead(config)

    def encode(self, batch: GraphBatch) -> Encoding:
        """Encodes graphs."""
        nodes = torch.cat([self.texts(batch.texts), batch.numbers], 1)
        environments = torch.cat([self.texts(batch.environment_texts), batch.environment_numbers], 1)
        encoding: Encoding = self.encoder(batch, nodes, environments)
        return encoding

    def effects(self, encoding: Encoding, tokens: TokenBatch) -> Tensor:
        """What each token does in its graph, shape (T, hidden)."""
        described = torch.cat([self.texts(tokens.texts), tokens.numbers], 1)
        effects: Tensor = self.reader(encoding, described, tokens.owner)
        return effects

    def score(self, encoding: Encoding, effects: Tensor, routes: RouteBatch) -> Scores:
        """Scores routes from the effects of their tokens."""
        scores: Scores = self.head(encoding.summary, effects, routes)
        return scores


class GraphEncoder(nn.Module):
    """Message passing along and against the edges, then pooling.

    One layer is h <- h + dropout(gelu(norm(W1 h + W2 mean(h of producers) + W3 mean(h of consumers)))), with
    GraphSAGE's convolution (Hamilton et al., "Inductive representation learning on large graphs", 2017).

    The environment enters by one linear layer that starts at zero: a device unlike all those seen then moves
    the prediction as far as it resembles them, and no further.
    """

    def __init__(self, config: NetworkConfig) -> None:
        """Builds the layers."""
        super().__init__()
        hidden, dropout = config.hidden, config.dropout
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

    def forward(self, batch: GraphBatch, nodes: Tensor, environments: Tensor) -> Encoding:
        """Encodes G graphs.

        Args:
            batch: the graphs.
            nodes: text embeddings and numbers of the nodes, shape (N, text + NODE_NUMBERS).
            environments: those of the environments, shape (G, text + ENVIRONMENT_NUMBERS).
        """
        environment = self.environment(environments)
        states = self.input(nodes) + environment[batch.owner]
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
        """Several poolings of the nodes, joined with the graph's figures, shape (G, hidden)."""
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
    """Logarithm of the sum of exp(local) over each graph's nodes, shape (G,)."""
    peak = scatter(local.detach(), batch.owner, dim_size=batch.graphs, reduce="max")
    total = scatter(torch.exp(local - peak[batch.owner]), batch.owner, dim_size=batch.graphs, reduce="sum")
    summed: Tensor = peak + torch.log(total)
    return summed


class TokenReader(nn.Module):
    """Multi-head attention of a token over the nodes of one graph.

    Focusing heads weigh the nodes by softmax(q.k) beside an empty slot of logit 0, so that a token whose
    operators the graph lacks reads nothing. Weighing heads use share(node) * sigmoid(q.k): a change of each
    node's time, weighted by its share of the time, which is how local effects add up to an end-to-end ratio.
    """

    def __init__(self, config: NetworkConfig) -> None:
        """Builds the layers."""
        super().__init__()
        hidden = config.hidden
        self.heads = config.heads
        self.token = _mlp(config.text + TOKEN_NUMBERS, hidden, hidden, config.dropout)
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.effect = _mlp(3 * hidden, hidden, hidden, config.dropout)

    def forward(self, encoding: Encoding, described: Tensor, owner: Tensor) -> Tensor:
        """Effects of T tokens, shape (T, hidden).

        Args:
            encoding: the graphs.
            described: text embeddings and numbers of the tokens, shape (T, text + TOKEN_NUMBERS).
            owner: the graph each token is asked about, shape (T,).
        """
        states = self.token(described)
        read = self._attend(states, owner, encoding)
        effects: Tensor = self.effect(torch.cat([states, read, encoding.summary[owner]], 1))
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
        found: Tensor = read[asked]
        return found

    def _split(self, dense: Tensor) -> Tensor:
        """Splits (G, length, hidden) into (G, heads, length, hidden / heads)."""
        split: Tensor = torch.unflatten(dense, 2, (self.heads, dense.shape[2] // self.heads))
        return split.transpose(1, 2)


class RouteHead(nn.Module):
    """Predicts from the set of a route's effects z and the summary g of its graph.

    With s = sum of z, p = ((sum of Pz)^2 - sum of (Pz)^2) / 2, which holds every pair of tokens once (Rendle,
    "Factorization machines", 2010), c = Cg and h = gelu(D[s, p] + c), the log ratio is a.[s, p] + b.(h -
    gelu(c)), which is 0 for the empty set; so is the accuracy loss. Failure and build time are A[s, p] + Bh.
    """

    def __init__(self, config: NetworkConfig) -> None:
        """Builds the layers."""
        super().__init__()
        hidden, pair = config.hidden, config.pair
        self.interact = nn.Linear(hidden, pair, bias=False)
        self.linear = nn.Linear(hidden + pair, 4, bias=False)
        self.route = nn.Linear(hidden + pair, hidden, bias=False)
        self.context = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(config.dropout)
        self.changes = nn.Linear(hidden, 2, bias=False)
        self.others = nn.Linear(hidden, 2)
        with torch.no_grad():
            for layer in (self.linear, self.changes, self.others):
                layer.weight.mul_(0.1)

    def forward(self, summary: Tensor, effects: Tensor, routes: RouteBatch) -> Scores:
        """Scores R routes."""
        projected = self.interact(effects)
        columns = torch.cat([effects, projected, projected.square()], 1)
        sums = functional.embedding_bag(routes.tokens, columns, routes.offsets, mode="sum")
        pair = projected.shape[1]
        total, linear, squares = torch.split(sums, [effects.shape[1], pair, pair], 1)
        route = torch.cat([total, (linear.square() - squares) / 2], 1)
        context = self.context(summary)
        hidden = functional.gelu(self.route(route) + context[routes.owner])
        change = hidden - functional.gelu(context)[routes.owner]
        straight = self.linear(route)
        changes, others = self.changes(self.dropout(change)), self.others(self.dropout(hidden))
        return Scores(
            log_ratio=straight[:, 0] + changes[:, 0],
            broken=straight[:, 1] + others[:, 0],
            build=straight[:, 2] + others[:, 1],
            log_loss=LOSS_UNIT * (straight[:, 3] + changes[:, 1]),
        )
