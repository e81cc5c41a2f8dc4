from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routecast.costmodel.features import (
    GRAPH_NUMBERS,
    NODE_NUMBERS,
    NODE_TEXTS,
    environment_features,
    graph_features,
    roofline_ms,
    token_features,
)
from routecast.datasets.environment import Environment
from routecast.datasets.graph import Graph, Node, Tensor

ENVIRONMENT = Environment("onnxruntime", "1.20", "Some CPU")
SHAPES = st.none() | st.lists(st.integers(0, 4096), max_size=6).map(tuple)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(["kernel_shape", "group", "strides", "pads", "mode", "axis"]),
    st.integers(-4, 10**6)
    | st.floats(allow_nan=False)
    | st.text(max_size=30)
    | st.lists(st.integers(0, 99), max_size=4),
)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.text(max_size=12), SHAPES, ATTRIBUTES, st.floats(0, 1e18), st.floats(0, 1e15)),
        min_size=1,
        max_size=5,
    )
)
def test_any_graph_gives_finite_features(rows: list[tuple[str, tuple[int, ...] | None, dict, float, float]]) -> None:  # type: ignore[type-arg]
    tensors = (Tensor((1,), "float32"), *(Tensor(shape, "float16") for _, shape, _, _, _ in rows))
    nodes = tuple(
        Node(op, "", (index, -1), (index + 1,), attributes, flops, size)
        for index, (op, _, attributes, flops, size) in enumerate(rows)
    )
    features = graph_features(Graph(nodes, tensors, (0,), (len(rows),), 17), ENVIRONMENT)
    assert features.texts.shape == (len(rows), NODE_TEXTS)
    assert features.numbers.shape == (len(rows), NODE_NUMBERS)
    assert features.summary.shape == (GRAPH_NUMBERS,)
    assert features.edges.shape == (2, len(rows) - 1)
    for array in (features.numbers, features.roofline, features.summary):
        assert np.isfinite(array).all()


def test_features_differ_with_what_matters(graph: Graph) -> None:
    numbers = graph_features(graph, ENVIRONMENT).numbers
    depthwise = Node("Conv", "", (0,), (1,), {"group": 64, "kernel_shape": [3, 3]}, 1e6, 1e5)
    dense = Node("Conv", "", (0,), (1,), {"group": 1, "kernel_shape": [3, 3]}, 1e6, 1e5)
    tensors = graph.tensors[:2]
    first, second = (
        graph_features(Graph((node,), tensors, (0,), (1,), 17), ENVIRONMENT).numbers for node in (depthwise, dense)
    )
    assert not np.array_equal(first, second)
    assert not np.array_equal(numbers[0], numbers[1])


def test_roofline_is_the_slower_of_compute_and_memory() -> None:
    nodes = (Node("MatMul", "", (), (), {}, 2e9, 1.0), Node("Add", "", (), (), {}, 1.0, 4e7))
    fast = Environment("x", "1", "y", numbers={"peak_gflops": 1000.0, "bandwidth_gbs": 40.0})
    assert roofline_ms(Graph(nodes, (), (), (), 17), fast) == pytest.approx([2.002, 1.002])


def test_unknown_knob_shares_the_parts_it_has_in_common() -> None:
    known, related, unrelated = token_features(
        [("optimizer.conv_fusion", "off"), ("optimizer.matmul_fusion", "off"), ("cache", "7")]
    ).texts
    shared = len(set(known) & set(related) - {0})
    assert shared >= 3
    assert len(set(known) & set(unrelated) - {0}) < shared


def test_numeric_values_are_numbers() -> None:
    numbers = token_features([("threads", "8"), ("threads", "off"), ("level", "-1"), ("level", "inf")]).numbers
    assert numbers[0].tolist() == pytest.approx([1.0, np.log2(9) / 4, 0.0, 0.0])
    assert numbers[1].tolist() == [0.0] * 4
    assert numbers[2][2] == 1.0
    assert np.isfinite(numbers).all()


def test_no_tokens_give_empty_arrays() -> None:
    features = token_features([])
    assert features.texts.shape[0] == features.numbers.shape[0] == 0


def test_missing_numbers_of_an_environment_are_masked() -> None:
    features = environment_features(Environment("onnxruntime", "1.20", "Some CPU", numbers={"cores": 0.0})).numbers[0]
    values, mask = np.split(features, 2)
    assert mask.tolist() == [1.0] + [0.0] * (len(mask) - 1)
    assert not values.any()
