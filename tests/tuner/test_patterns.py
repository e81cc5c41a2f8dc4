from __future__ import annotations

import pytest

from routecast.datasets.graph import Graph, Node, Tensor
from routecast.tuner.patterns import GraphFacts


def facts(*nodes: tuple[str, list[int], list[int]], constants: frozenset[int] = frozenset()) -> GraphFacts:
    """A graph of (operator, inputs, outputs); tensor 0 is the input, the last one the output."""
    count = 1 + max(index for _, inputs, outputs in nodes for index in (*inputs, *outputs))
    tensors = tuple(Tensor((4,), "float32", index in constants) for index in range(count))
    made = tuple(
        Node(op, f"n{place}", tuple(inputs), tuple(outputs)) for place, (op, inputs, outputs) in enumerate(nodes)
    )
    return GraphFacts(Graph(made, tensors, (0,), (count - 1,), 17))


def test_follows_within_hops():
    graph = facts(("Conv", [0], [1]), ("Mul", [1], [2]), ("Relu", [2], [3]))
    assert graph.follows("Conv", "Mul")
    assert not graph.follows("Conv", "Relu")
    assert graph.follows("Conv", ("Relu", "Clip"), hops=2)
    assert not graph.follows("Relu", "Conv", hops=5)


@pytest.mark.parametrize(
    ("nodes", "branches"),
    [
        ([("Neg", [0], [1]), ("Abs", [1], [2])], False),
        ([("Neg", [0], [1]), ("Add", [0, 1], [2])], False),
        ([("Neg", [0], [1]), ("Abs", [0], [2]), ("Add", [1, 2], [3])], True),
    ],
)
def test_branches(nodes, branches):
    assert facts(*nodes).has_branches is branches


def test_operators_of_constants_are_no_branch():
    graph = facts(("Neg", [0], [1]), ("Abs", [2], [3]), ("Add", [1, 3], [4]), constants=frozenset({2}))
    assert not graph.has_branches
    assert graph.foldable


def test_weights_are_constant_second_inputs():
    graph = facts(("MatMul", [0, 1], [2]), ("MatMul", [2, 0], [3]), constants=frozenset({1}))
    assert [node.name for node in graph.weighted()] == ["n0"]
    assert graph.weighted("Conv") == []


def test_duplicates_and_siblings():
    assert facts(("Neg", [0], [1]), ("Neg", [0], [2])).duplicates
    assert not facts(("Neg", [0], [1]), ("Neg", [1], [2])).duplicates
    assert facts(("Slice", [0], [1]), ("Slice", [0], [2]), ("Neg", [0], [3])).siblings["Slice"] == 2
