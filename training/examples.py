"""Turns what was measured of a model in an environment into training examples: its routes and their targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from routecast.costmodel.batch import GraphBatch, RouteBatch, TokenBatch
from routecast.costmodel.features import (
    Floats,
    GraphFeatures,
    Integers,
    TextFeatures,
    Token,
    environment_features,
    token_features,
)
from routecast.costmodel.repeats import Repeats, combine
from routecast.datasets.environment import Environment
from routecast.datasets.graph import Graph
from routecast.datasets.measurement import Measurement
from routecast.datasets.route import Route
from routecast.training.losses import Targets

MOST_ROUTES = 256
"""Routes of one example; a model with more becomes several, since ranking compares each route with each other."""

Part = TypeVar("Part", GraphBatch, TokenBatch, RouteBatch, Targets)


@dataclass(frozen=True)
class Example:
    """Routes of one model in one environment: R routes made of T distinct tokens.

    Attributes:
        fingerprint: of the graph.
        environment: identity of the environment.
        model: name of the model, for people.
        family: architecture family, the unit of every split.
        graph: features of its N nodes.
        device: features of the environment.
        tokens: the T tokens.
        token_features: their features.
        route_tokens: indices into the tokens, route after route.
        lengths: number of settings of each route, shape (R,).
        log_ratio, noise, log_loss, failed, broken, log_build: targets of the routes, NaN where unknown, shape (R,).
        log_default: ln of the default latency in ms, NaN when unknown.
        local_shares: share of each node in the measured local time, NaN when not profiled, shape (N,).
        log_local_sum: ln of the sum of local times in ms, NaN when not profiled.
        gap: ln(end-to-end latency / sum of local times) of the default route, NaN when not profiled.
    """

    fingerprint: str
    environment: str
    model: str
    family: str
    graph: GraphFeatures
    device: TextFeatures
    tokens: tuple[Token, ...]
    token_features: TextFeatures
    route_tokens: Integers
    lengths: Integers
    log_ratio: Floats
    noise: Floats
    log_loss: Floats
    failed: Floats
    broken: Floats
    log_build: Floats
    log_default: float
    local_shares: Floats
    log_local_sum: float
    gap: float

    @cached_property
    def routes(self) -> tuple[Route, ...]:
        """What was measured, repeated measurements combined; the default route only if it was built."""
        ends = np.cumsum(self.lengths)
        return tuple(
            Route(self.tokens[token] for token in self.route_tokens[end - length : end])
            for end, length in zip(ends, self.lengths, strict=True)
        )


@dataclass(frozen=True)
class Batch:
    """Several examples laid end to end."""

    graphs: GraphBatch
    tokens: TokenBatch
    routes: RouteBatch
    targets: Targets

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        return type(self)(
            _moved(self.graphs, device),
            _moved(self.tokens, device),
            _moved(self.routes, device),
            _moved(self.targets, device),
        )


def _moved(part: Part, device: torch.device) -> Part:
    return type(part)(**{item.name: getattr(part, item.name).to(device) for item in fields(part)})


def make_examples(
    graph: Graph, environment: Environment, features: GraphFeatures, found: Sequence[Measurement]
) -> Iterator[Example]:
    """Examples of one model in one environment: one, or several when more than ``MOST_ROUTES`` were measured.

    Args:
        graph: the model's graph, with at least one node.
        environment: where it was measured.
        features: of the graph in this environment.
        found: all measurements of the two, at least one, in the order they were made.
    """
    shares, local_sum, gap = _local(graph, found)
    log_default = _mean_log([measurement.default_ms for measurement in found if measurement.default_ms])
    for repeats in _pieces(combine(found)):
        settings = [tuple(item.route.items()) for item in repeats]
        tokens = tuple(dict.fromkeys(token for route in settings for token in route))
        place = {token: index for index, token in enumerate(tokens)}
        yield Example(
            fingerprint=found[0].fingerprint,
            environment=found[0].environment,
            model=found[0].model,
            family=found[0].family,
            graph=features,
            device=environment_features(environment),
            tokens=tokens,
            token_features=token_features(tokens),
            route_tokens=np.array([place[token] for route in settings for token in route], np.int64),
            lengths=np.array([len(route) for route in settings], np.int64),
            log_ratio=_floats([item.log_ratio if item.route else None for item in repeats]),
            noise=_floats([item.noise for item in repeats]),
            log_loss=_floats([item.log_loss if item.route else None for item in repeats]),
            failed=_floats([item.failed if item.route else None for item in repeats]),
            broken=_floats([item.broken if item.route else None for item in repeats]),
            log_build=_floats([item.log_build for item in repeats]),
            log_default=log_default,
            local_shares=shares,
            log_local_sum=local_sum,
            gap=gap,
        )


def _pieces(repeats: Sequence[Repeats]) -> Iterator[Sequence[Repeats]]:
    """Deals routes at random into as few pieces of about equal size as ``MOST_ROUTES`` allows."""
    count = -(-len(repeats) // MOST_ROUTES)
    order = np.random.default_rng(len(repeats)).permutation(len(repeats)) if count > 1 else np.arange(len(repeats))
    for piece in np.array_split(order, count):
        yield [repeats[place] for place in np.sort(piece)]


def _local(graph: Graph, found: Sequence[Measurement]) -> tuple[Floats, float, float]:
    """Shares, ln of the sum, and gap, from the profiles of the default route."""
    profiled = [item for item in found if item.route.is_default and item.local_profile and item.local_sum_ms]
    times = np.zeros(len(graph.nodes))
    for measurement in profiled:
        for layer in measurement.local_profile:
            if 0 <= layer.node < len(times):
                times[layer.node] += layer.ms
    total = times.sum()
    shares = times / total if total > 0 else np.full(len(times), np.nan)
    local_sum = _mean_log([item.local_sum_ms for item in profiled if item.local_sum_ms])
    gaps = [item.latency_ms / item.local_sum_ms for item in profiled if item.latency_ms and item.local_sum_ms]
    return shares.astype(np.float32), local_sum, _mean_log(gaps)


def _mean_log(values: Sequence[float]) -> float:
    return float(np.mean(np.log(values))) if values else float("nan")


def _floats(values: Sequence[float | None]) -> npt.NDArray[np.float32]:
    return np.array([np.nan if value is None else value for value in values], np.float32)


def collate(examples: Sequence[Example]) -> Batch:
    """Joins examples into one batch."""
    counts = [len(example.tokens) for example in examples]
    return Batch(
        graphs=GraphBatch.collate([(example.graph, example.device) for example in examples]),
        tokens=TokenBatch.collate([example.token_features for example in examples]),
        routes=RouteBatch.collate([(example.route_tokens, example.lengths) for example in examples], counts),
        targets=Targets(
            log_ratio=_joined([example.log_ratio for example in examples]),
            noise=_joined([example.noise for example in examples]),
            log_loss=_joined([example.log_loss for example in examples]),
            broken=_joined([example.broken for example in examples]),
            build=_joined([example.log_build for example in examples]),
            default=torch.tensor([example.log_default for example in examples]),
            local_shares=_joined([example.local_shares for example in examples]),
            local_sum=torch.tensor([example.log_local_sum for example in examples]),
            gap=torch.tensor([example.gap for example in examples]),
        ),
    )


def _joined(arrays: Sequence[Floats]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(arrays))
