from __future__ import annotations

import json

import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routecast.tuner.backends.onnxruntime.origins import Origins, computed_tensors
from routecast.tuner.backends.onnxruntime.profile import local_times

MODEL = onnx.parser.parse_model(
    """
    <ir_version: 8, opset_import: ["" : 17]>
    network (float[4] x) => (float[4] y) {
        conv_out = Relu(x)  conv_out_1 = Neg(conv_out)  y = Abs(conv_out_1)
    }
    """
)
for node, name in zip(MODEL.graph.node, ("/l/Conv", "/l/Conv_1", "/l/Conv_12"), strict=True):
    node.name = name
NODES = {"/l/Conv": 0, "/l/Conv_1": 1, "/l/Conv_12": 2}


def run(start, duration):
    return {"cat": "Session", "name": "model_run", "ts": start, "dur": duration, "args": {}}


def kernel(name, start, duration, op="Op"):
    return {
        "cat": "Node", "name": f"{name}_kernel_time", "ts": start, "dur": duration, "args": {"op_name": op},
    }  # fmt: skip


def test_median_over_the_last_inferences_in_order_of_execution():
    events = [run(0, 100), kernel("b", 60, 900), kernel("a", 10, 999)]
    for index, duration in enumerate((10, 30, 20)):
        start = 1000 * (index + 1)
        events += [run(start, 100), kernel("a", start + 1, duration), kernel("b", start + 50, 7)]
    events.append({"cat": "Node", "name": "a_fence_before", "ts": 1001, "dur": 50, "args": {}})
    layers = local_times(json.dumps(events), 3, Origins(MODEL, {"b": 5}))
    assert [(layer.name, layer.op, layer.ms, layer.node) for layer in layers] == [
        ("a", "Op", 0.02, -1),
        ("b", "Op", 0.007, 5),
    ]


def test_time_in_bodies_is_counted_once():
    events = [
        run(0, 1000),
        kernel("loop", 10, 500, "Loop"), kernel("inner", 20, 100), kernel("inner", 200, 150),
        kernel("if", 360, 40, "If"), kernel("leaf", 365, 30), kernel("after", 600, 50),
    ]  # fmt: skip
    layers = {layer.name: layer.ms for layer in local_times(json.dumps(events), 1, Origins(MODEL, {}))}
    assert layers == pytest.approx({"loop": 0.21, "inner": 0.25, "if": 0.01, "leaf": 0.03, "after": 0.05})


@pytest.mark.parametrize(
    ("executed", "node"),
    [
        ("/l/Conv", 0),
        ("/l/Conv_1", 1),
        ("fused /l/Conv_1", 1),
        ("/l/Conv_12_nchwc", 2),
        ("/l/Conv_123", 0),
        ("/l/Convex", -1),
        ("x/l/Conv", -1),
        ("conv_out_1_nchwc", 1),
        ("ReorderInput", -1),
        ("Gelu_token_3", 2),
        ("", -1),
    ],
)
def test_origin_by_name_or_tensor(executed, node):
    assert Origins(MODEL, NODES, {"Gelu_token_3": ["y"]}).node(executed) == node


def test_nodes_without_a_name_are_found_by_what_they_compute():
    assert Origins(MODEL, {}).node("conv_out_1_nchwc") == 1


def test_bodies_come_after_the_node_that_holds_them():
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        network (bool c, float[4] x) => (float[4] y) {
            a = If (c) <then_branch = t () => (p) { p = Neg(x) }, else_branch = e () => (q) { q = Abs(x) }>
            y = Relu(a)
        }
        """
    )
    assert [Origins(model, {}).node(name) for name in ("a", "p", "q", "y")] == [0, 1, 2, 3]
    assert ["y"] in computed_tensors(model).values()


@pytest.mark.parametrize(
    ("op", "node"), [("FusedConv", 0), ("QLinearConv", 0), ("Relu", 3), ("Add", 2), ("Other", 3), ("", 3)]
)
def test_a_fused_node_counts_for_the_node_of_its_kind(op, node):
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        network (float[1,2,4,4] x, float[2,2,3,3] w, float[1] s) => (float[1,2,2,2] y) {
            c = Conv(x, w)  m = Mul(c, s)  a = Add(m, s)  y = Relu(a)
        }
        """
    )
    assert Origins(model, {}, {"made": ["y"]}).node("made", op) == node


def test_a_product_of_matrices_is_no_product():
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        network (float[2,2] x, float[2,2] w, float[1] s) => (float[2,2] y) {
            m = MatMul(x, w)  y = Mul(m, s)
        }
        """
    )
    origins = Origins(model, {}, {"made": ["y"]})
    assert [origins.node("made", op) for op in ("FusedMatMul", "Gemm", "Mul")] == [0, 0, 1]


@given(st.text(max_size=40))
def test_any_name_has_an_origin_or_none(executed):
    assert Origins(MODEL, NODES).node(executed) in (-1, 0, 1, 2)


@given(
    st.sampled_from(sorted(NODES)),
    st.sampled_from(["{}_nchwc", "fused {}", "{}/MatMulAddFusion", "a.{}.b"]),
)
def test_what_is_made_from_a_node_is_traced_to_it(name, pattern):
    assert Origins(MODEL, NODES).node(pattern.format(name)) == NODES[name]
