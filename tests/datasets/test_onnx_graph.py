"""Tests of building graphs: order, subgraphs, attributes and types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from routecast.datasets.model import Model, open_model

Save = Callable[..., Path]
Refused = Callable[..., None]
ShapesOf = Callable[[Model], dict[str, tuple[int, ...] | None]]
relu = helper.make_node("Relu", ["x"], ["y"])


def value(name: str, shape: list[int] | None = None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def test_value_that_nothing_computes(save: Save, refused: Refused) -> None:
    node = helper.make_node("Add", ["x", "ghost"], ["y"], name="add")
    refused(save([node], {"x": [1]}, ["y"]), "operator Add 'add' read 'ghost', which nothing computes")


def test_output_that_nothing_computes(save: Save, refused: Refused) -> None:
    refused(save([relu], {"x": [1]}, ["z"]), "outputs read 'z', which nothing computes")


def test_cycle(save: Save, refused: Refused) -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="p"),
        helper.make_node("Relu", ["a"], ["b"], name="q"),
    ]
    refused(save(nodes, {"x": [1]}, ["b"]), "'p', 'q' wait for each other in a cycle")


def test_operators_out_of_order_are_sorted(save: Save) -> None:
    nodes = [helper.make_node("Relu", ["h"], ["y"]), helper.make_node("Neg", ["x"], ["h"])]
    graph = open_model(save(nodes, {"x": [1, 2]}, ["y"])).graph
    assert [node.op for node in graph.nodes] == ["Neg", "Relu"]
    assert all(tensor.shape == (1, 2) for tensor in graph.tensors)


def test_nodes_of_subgraphs_follow_their_holder(save: Save, shapes_of: ShapesOf) -> None:
    inner = helper.make_node("Mul", ["x", "k"], ["t"], name="inner")
    then = helper.make_graph([inner], "then", [], [value("t")], [numpy_helper.from_array(np.float32([2.0]), "k")])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["e"], name="neg")], "else", [], [value("e")])
    nodes = [
        helper.make_node("If", ["c"], ["h"], name="if", then_branch=then, else_branch=other),
        helper.make_node("Relu", ["h"], ["y"], name="relu"),
    ]
    model = open_model(save(nodes, {"x": [1, 4]}, ["y"], {"c": np.array(True)}))
    found = {node.name: (node.op, node.depth) for node in model.graph.nodes}
    assert sorted(found.items()) == [
        ("if", ("If", 0)),
        ("inner", ("Mul", 1)),
        ("neg", ("Neg", 1)),
        ("relu", ("Relu", 0)),
    ]
    assert [node.depth for node in model.graph.nodes] == [0, 1, 1, 0]
    assert shapes_of(model)["inner"] == (1, 4)
    assert shapes_of(model)["relu"] == (1, 4)


def test_attributes_are_small_and_types_are_named_as_numpy_does(tmp_path: Path) -> None:
    constant = helper.make_tensor("t", TensorProto.INT64, [2], [1, 2])
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16),
        helper.make_node("Constant", [], ["axes"], value=constant),
        helper.make_node("Unsqueeze", ["h", "axes"], ["u"]),
        helper.make_node("Cast", ["u"], ["y"], to=TensorProto.FLOAT8E4M3FN),
        helper.make_node(
            "TreeEnsembleRegressor",
            ["x"],
            ["z"],
            domain="ai.onnx.ml",
            nodes_values=[0.5] * 17,
            base_values=[1.0],
        ),
    ]
    outputs = [value("y", None, TensorProto.FLOAT8E4M3FN), value("z")]
    graph = helper.make_graph(nodes, "test", [value("x", [3, 4])], outputs)
    path = tmp_path / "net.onnx"
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save_model(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    opened = open_model(path).graph
    assert opened.nodes[0].attributes == {"to": TensorProto.BFLOAT16}
    assert [node.op for node in opened.nodes[:3]] == ["Cast", "Unsqueeze", "Cast"]
    assert [opened.tensors[node.outputs[0]].dtype for node in opened.nodes[:3]] == [
        "bfloat16",
        "bfloat16",
        "float8_e4m3fn",
    ]
    assert opened.nodes[3].attributes == {"base_values": [1.0]}
    assert opened.tensors[opened.nodes[1].inputs[1]].constant


def test_initialisers_listed_as_inputs_are_not_fed(save: Save) -> None:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = open_model(save([node], {"x": [2], "w": [2]}, ["y"], {"w": np.ones(2, np.float32)}))
    assert [spec.name for spec in model.inputs] == ["x"]
    assert model.graph.tensors[model.graph.nodes[0].inputs[1]].constant


def test_own_functions_are_inlined(tmp_path: Path) -> None:
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    function = helper.make_function(
        "mine", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], imports[:1]
    )
    graph = helper.make_graph(
        [helper.make_node("Twice", ["x"], ["h"], domain="mine"), helper.make_node("Relu", ["h"], ["y"])],
        "test",
        [value("x", [2, 3])],
        [value("y")],
    )
    path = tmp_path / "net.onnx"
    onnx.save_model(helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=10), path)
    opened = open_model(path).graph
    assert [node.op for node in opened.nodes] == ["Add", "Relu"]
    assert opened.flops == 12
