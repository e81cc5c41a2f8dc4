"""Tests of graphs."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from routecast.datasets.graph import Graph, Node, Tensor

indices = st.lists(st.integers(-1, 20), max_size=4).map(tuple)
numbers = st.floats(allow_nan=False, allow_infinity=False)
attributes = st.one_of(
    st.integers(),
    numbers,
    st.text(max_size=8),
    st.lists(st.integers(), max_size=4),
    st.lists(numbers, max_size=4),
)
shapes = st.none() | st.lists(st.integers(0, 4096), max_size=5).map(tuple)
tensors = st.builds(Tensor, shapes, st.sampled_from(["float32", "int64", "bfloat16", ""]), st.booleans())
nodes = st.builds(
    Node,
    op=st.sampled_from(["Conv", "Relu", "com.microsoft::Gelu"]),
    name=st.text(max_size=8),
    inputs=indices,
    outputs=indices,
    attributes=st.dictionaries(st.text(max_size=8), attributes, max_size=3),
    flops=st.floats(0, 1e15),
    bytes=st.floats(0, 1e12),
    depth=st.integers(0, 3),
)
graphs = st.builds(
    Graph,
    nodes=st.lists(nodes, max_size=5).map(tuple),
    tensors=st.lists(tensors, max_size=6).map(tuple),
    inputs=indices,
    outputs=indices,
    opset=st.integers(1, 30),
)
CHAIN = Graph(
    nodes=(
        Node("Conv", "c", (0, 1), (2,), {"group": 1, "pads": [1, 1]}, flops=100.0),
        Node("Relu", "r", (2,), (3,), flops=10.0),
        Node("Add", "a", (3, 3), (4,), flops=10.0),
    ),
    tensors=(Tensor((1, 3), "float32"), Tensor((8, 3), "float16", True), *(Tensor((1, 8), "float32"),) * 3),
    inputs=(0,),
    outputs=(4,),
    opset=18,
)


@given(graphs)
def test_json_round_trips(graph: Graph) -> None:
    again = Graph.from_json(json.loads(json.dumps(graph.to_json())))
    assert again == graph
    assert again.fingerprint == graph.fingerprint


def test_fingerprint_ignores_names_and_sees_everything_else() -> None:
    first, *rest = CHAIN.nodes
    assert replace(CHAIN, nodes=(replace(first, name="other"), *rest)).fingerprint == CHAIN.fingerprint
    different = [
        replace(CHAIN, opset=17),
        replace(CHAIN, outputs=(3,)),
        replace(CHAIN, nodes=(replace(first, op="FusedConv"), *rest)),
        replace(CHAIN, nodes=(replace(first, attributes={"group": 2}), *rest)),
        replace(CHAIN, tensors=(Tensor((2, 3), "float32"), *CHAIN.tensors[1:])),
        replace(CHAIN, tensors=(Tensor((1, 3), "float16"), *CHAIN.tensors[1:])),
    ]
    assert len({graph.fingerprint for graph in different} | {CHAIN.fingerprint}) == len(different) + 1


def test_sums_and_edges() -> None:
    assert CHAIN.flops == 120.0
    assert CHAIN.weight_bytes == 8 * 3 * 2
    assert CHAIN.ops == {"Conv", "Relu", "Add"}
    assert CHAIN.edges() == [(0, 1), (1, 2), (1, 2)]


def test_a_tensor_of_unknown_shape_has_no_size() -> None:
    assert Tensor(None, "float32").bytes == 0
    assert Tensor((), "int64").bytes == 8
