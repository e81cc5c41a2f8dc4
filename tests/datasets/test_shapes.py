"""Tests of fixing input shapes and of inferring all others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from routecast.datasets.model import Model, open_model

Save = Callable[..., Path]
Refused = Callable[..., None]
ShapesOf = Callable[[Model], dict[str, tuple[int, ...] | None]]
relu = helper.make_node("Relu", ["x"], ["y"])


def value(name: str, shape: list[int] | None = None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def test_dynamic_axes_say_which_and_what_to_pass(save: Save, refused: Refused) -> None:
    path = save([relu], {"x": ["batch", 3, None, None]}, ["y"])
    refused(
        path,
        r"input 'x' has dynamic axes 0, 2, 3 in its shape \[batch, 3, \?, \?\]; .*--shapes x:1x3x224x224",
    )
    path = save([relu], {"x": ["batch", 77]}, ["y"])
    refused(path, r"input 'x' has dynamic axis 0 in its shape \[batch, 77\]; .*--shapes x:1x77")


def test_sizes_below_one_are_dynamic(save: Save, refused: Refused) -> None:
    refused(save([relu], {"x": [-1, 5]}, ["y"]), "dynamic axis 0")


def test_input_without_a_declared_shape(save: Save, refused: Refused) -> None:
    path = save([relu], {"x": None}, ["y"])
    refused(path, "input 'x' has no declared shape; pass it")
    assert open_model(path, {"x": (2, 2)}).inputs[0].shape == (2, 2)


def test_a_named_size_is_fixed_everywhere(save: Save, refused: Refused) -> None:
    path = save([helper.make_node("Add", ["a", "b"], ["y"])], {"a": ["n", 4], "b": ["n", "m"]}, ["y"])
    refused(path, r"input 'b' has dynamic axis 1 .*--shapes b:2x128", shapes={"a": (2, 4)})
    model = open_model(path, {"b": (2, 4)})
    assert [spec.shape for spec in model.inputs] == [(2, 4), (2, 4)]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"images": (1, 64)}, "has no input named 'images'; its inputs are 'x'"),
        ({"x": (64,)}, r"has 2 dimensions \(\[batch, 64\]\), got 1 \(64\)"),
        ({"x": (1, 65)}, r"axis 1 of input 'x' is fixed at 64 .*got 65"),
        ({"x": (0, 64)}, "at least 1, got 0x64"),
    ],
)
def test_shapes_that_do_not_fit(
    perceptron: Path, shapes: dict[str, tuple[int, ...]], message: str, refused: Refused
) -> None:
    refused(perceptron, message, shapes=shapes)


def test_operators_that_do_not_fit_the_shapes(save: Save, refused: Refused) -> None:
    path = save(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": ["n", "k"]},
        ["y"],
        {"w": np.ones((8, 2), np.float32)},
    )
    refused(path, "do not fit together at the shapes given", shapes={"x": (1, 9)})


def test_input_that_is_no_tensor(tmp_path: Path, refused: Refused) -> None:
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("SequenceLength", ["x"], ["y"])], "test", [sequence], [value("y")])
    path = tmp_path / "net.onnx"
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    refused(path, "input 'x' is a sequence; only tensors can be fed")


def test_shape_computations_are_followed(save: Save, shapes_of: ShapesOf) -> None:
    """A size taken from Shape makes a Range, whose greatest value sets the shape of a Reshape."""
    constants = {"zero": np.array(0), "one": np.array(1), "two": np.array([2]), "minus": np.array([-1])}
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], name="shape"),
        helper.make_node("Gather", ["s", "zero"], ["n"], name="gather"),
        helper.make_node("Range", ["zero", "n", "one"], ["r"], name="range"),
        helper.make_node("ReduceMax", ["r"], ["top"], name="max", keepdims=1),
        helper.make_node("Concat", ["two", "top", "minus"], ["target"], name="concat", axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"], name="reshape"),
    ]
    model = open_model(save(nodes, {"x": ["n", 12]}, ["y"], constants), {"x": (4, 12)})
    assert shapes_of(model)["range"] == (4,)
    assert shapes_of(model)["reshape"] == (2, 3, 8)
    assert [node.op for node in model.graph.nodes] == [node.op_type for node in nodes]
