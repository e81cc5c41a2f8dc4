"""Tests of what becomes of unknown operators."""

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


def test_unknown_operator(save: Save, refused: Refused) -> None:
    node = helper.make_node("Frobnicate", ["x"], ["y"], name="f1")
    refused(
        save([node], {"x": [1]}, ["y"]),
        r"unknown operator Frobnicate \(node 'f1'\): opset 18 of ONNX has none",
    )


def test_operator_that_is_newer_than_the_opset(save: Save, refused: Refused) -> None:
    node = helper.make_node("Gelu", ["x"], ["y"])
    refused(save([node], {"x": [1]}, ["y"], opset=19), "unknown operator Gelu: opset 19")
    assert open_model(save([node], {"x": [1]}, ["y"], opset=20)).graph.ops == {"Gelu"}


def test_operator_that_the_opset_removed(save: Save, refused: Refused) -> None:
    node = helper.make_node("Upsample", ["x", "s"], ["y"])
    path = save([node], {"x": [1, 1, 2, 2]}, ["y"], {"s": np.ones(4, np.float32)}, opset=11)
    refused(path, "unknown operator Upsample")


def test_unknown_operator_inside_a_subgraph(save: Save, refused: Refused) -> None:
    body = helper.make_graph([helper.make_node("Nope", ["x"], ["b"])], "body", [], [value("b")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    refused(save([node], {"x": [1]}, ["y"], {"c": np.array(True)}), "unknown operator Nope")


def test_operators_of_onnxruntime_are_known(save: Save) -> None:
    node = helper.make_node("FastGelu", ["x"], ["y"], domain="com.microsoft")
    model = open_model(save([node], {"x": [1, 4]}, ["y"], domains={"com.microsoft": 1}))
    assert model.graph.ops == {"com.microsoft::FastGelu"}


def test_a_domain_need_not_be_imported(save: Save) -> None:
    """ONNX Runtime's own optimiser leaves the import out, and ONNX Runtime reads that."""
    nodes = [
        helper.make_node("FastGelu", ["x"], ["h"], domain="com.microsoft"),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    model = open_model(save(nodes, {"x": ["n", 4]}, ["y"]), {"x": (2, 4)})
    assert [node.op for node in model.graph.nodes] == ["com.microsoft::FastGelu", "Relu"]


def test_shapes_are_known_behind_operators_of_onnxruntime(save: Save, shapes_of: ShapesOf) -> None:
    nodes = [
        helper.make_node("BiasGelu", ["x", "b"], ["h"], name="gelu", domain="com.microsoft"),
        helper.make_node("MatMul", ["h", "w"], ["y"], name="matmul"),
    ]
    weights = {"b": np.ones(4, np.float32), "w": np.ones((4, 3), np.float32)}
    path = save(nodes, {"x": ["n", 4]}, ["y"], weights, domains={"com.microsoft": 1})
    model = open_model(path, {"x": (2, 4)})
    assert shapes_of(model) == {"gelu": (2, 4), "matmul": (2, 3)}
    assert [node.op for node in model.graph.nodes] == ["com.microsoft::BiasGelu", "MatMul"]
    assert len(model.graph.nodes[0].inputs) == 2


@pytest.mark.parametrize("domain", ["com.microsoft", "my.company"])
def test_unknown_operator_of_another_domain(save: Save, domain: str, refused: Refused) -> None:
    node = helper.make_node("Nope", ["x"], ["y"], domain=domain)
    refused(save([node], {"x": [1]}, ["y"], domains={domain: 1}), f"unknown operator {domain}::Nope; custom")


def test_opset_of_the_future(save: Save, refused: Refused) -> None:
    refused(save([relu], {"x": [1]}, ["y"], opset=99), "uses opset 99.*pip install --upgrade onnx")
