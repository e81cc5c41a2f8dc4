from __future__ import annotations

import pytest
import torch

from routecast.costmodel.batch import GraphBatch, RouteBatch, TokenBatch
from routecast.costmodel.features import Token, environment_features, graph_features, token_features
from routecast.costmodel.network import Encoding, NetworkConfig, RouteNetwork, Scores
from routecast.datasets.environment import Environment
from routecast.datasets.graph import Graph

TOKENS: tuple[Token, ...] = (("session.threads", "1"), ("optimizer.fusion", "off"), ("precision.policy", "int8"))
ROUTES = ((), (0,), (1,), (0, 1), (1, 0), (0, 1, 2))


@pytest.fixture
def network() -> RouteNetwork:
    torch.manual_seed(1)
    return RouteNetwork(NetworkConfig()).eval()


def run(network: RouteNetwork, graphs: list[Graph], environment: Environment) -> tuple[Encoding, Scores]:
    device = environment_features(environment)
    encoding = network.encode(GraphBatch.collate([(graph_features(graph, environment), device) for graph in graphs]))
    effects = network.effects(encoding, TokenBatch.collate([token_features(TOKENS)] * len(graphs)))
    flat = torch.tensor([token for route in ROUTES for token in route]).numpy()
    lengths = torch.tensor([len(route) for route in ROUTES]).numpy()
    routes = RouteBatch.collate([(flat, lengths)] * len(graphs), [len(TOKENS)] * len(graphs))
    return encoding, network.score(encoding, effects, routes)


def test_default_route_has_no_effect_even_in_training(
    network: RouteNetwork, graph: Graph, environment: Environment
) -> None:
    network.train()
    _, scores = run(network, [graph], environment)
    assert scores.log_ratio[0] == 0
    assert (scores.log_ratio[1:] != 0).all()


def test_order_of_settings_does_not_matter(network: RouteNetwork, graph: Graph, environment: Environment) -> None:
    _, scores = run(network, [graph], environment)
    torch.testing.assert_close(scores.log_ratio[3], scores.log_ratio[4])
    torch.testing.assert_close(scores.broken[3], scores.broken[4])


def test_graphs_in_one_batch_do_not_mix(
    network: RouteNetwork, graph: Graph, other_graph: Graph, environment: Environment
) -> None:
    together, scores = run(network, [graph, other_graph], environment)
    for index, alone in enumerate((graph, other_graph)):
        encoding, single = run(network, [alone], environment)
        torch.testing.assert_close(together.default[index : index + 1], encoding.default)
        torch.testing.assert_close(together.gap[index : index + 1], encoding.gap)
        rows = slice(index * len(ROUTES), (index + 1) * len(ROUTES))
        torch.testing.assert_close(scores.log_ratio[rows], single.log_ratio, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(scores.build[rows], single.build, atol=1e-6, rtol=1e-4)


def test_local_times_sum_and_shares_are_consistent(
    network: RouteNetwork, graph: Graph, other_graph: Graph, environment: Environment
) -> None:
    encoding, _ = run(network, [graph, other_graph], environment)
    for index in range(2):
        mine = encoding.owner == index
        torch.testing.assert_close(encoding.local[mine].exp().sum().log(), encoding.local_sum[index])
        torch.testing.assert_close(encoding.shares[mine].sum(), torch.tensor(1.0))


def test_every_weight_learns(network: RouteNetwork, graph: Graph, other_graph: Graph, environment: Environment) -> None:
    encoding, scores = run(network, [graph, other_graph], environment)
    total = (
        scores.log_ratio.sum()
        + scores.broken.sum()
        + scores.build.sum()
        + scores.log_loss.sum()
        + encoding.default.sum()
    )
    total.backward()  # type: ignore[no-untyped-call]
    silent = [name for name, weight in network.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not silent


def test_effect_of_a_token_depends_on_the_graph(
    network: RouteNetwork, graph: Graph, other_graph: Graph, environment: Environment
) -> None:
    _, scores = run(network, [graph, other_graph], environment)
    assert not torch.allclose(scores.log_ratio[1 : len(ROUTES)], scores.log_ratio[len(ROUTES) + 1 :])


def test_unknown_device_starts_as_good_as_any(network: RouteNetwork, graph: Graph, environment: Environment) -> None:
    other = Environment("tensorrt", "11.1", "Some GPU", numbers={"streaming_multiprocessors": 132.0})
    first, _ = run(network, [graph], environment)
    second, _ = run(network, [graph], other)
    torch.testing.assert_close(first.states, second.states)


def test_a_graph_without_tokens_can_be_alone(network: RouteNetwork, graph: Graph, environment: Environment) -> None:
    """Only its default route was measured."""
    encoding = network.encode(
        GraphBatch.collate([(graph_features(graph, environment), environment_features(environment))])
    )
    effects = network.effects(encoding, TokenBatch.collate([token_features(())]))
    none = torch.empty(0, dtype=torch.int64).numpy()
    scores = network.score(
        encoding, effects, RouteBatch.collate([(none, torch.zeros(1, dtype=torch.int64).numpy())], [0])
    )
    assert scores.log_ratio.tolist() == [0.0]
