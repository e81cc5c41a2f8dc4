"""Gemm as the MatMul and Add that it is made of; ONNX has no function body for it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from routecast.datasets.graph import Graph
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.passes.base import GraphPass, PassContext, PassFailed
from routecast.tuner.passes.constants import lift_constants

_KNOB, _LOWERED = "form.gemm", "lower"


class GemmLowering(GraphPass):
    """Gemm to MatMul and Add."""

    name: ClassVar[str] = "gemm"

    def space(self, graph: Graph) -> RouteSpace:
        """One knob, for graphs that hold a Gemm."""
        if "Gemm" not in graph.ops:
            return RouteSpace((), {_KNOB: "the graph holds no Gemm"})
        return RouteSpace((Knob(_KNOB, ("keep", _LOWERED), "keep", "replace Gemm by MatMul and Add", stage="build"),))

    def wanted(self, route: Route) -> bool:
        """Whether Gemm is to be lowered."""
        return route.get(_KNOB) == _LOWERED

    def apply(self, model: ModelProto, context: PassContext) -> ModelProto:
        """Replaces every Gemm that only multiplies and adds.

        Raises:
            PassFailed: there is none.
        """
        if not lower_gemm(model):
            raise PassFailed("every Gemm scales what it multiplies or adds")
        return model


def lower_gemm(model: ModelProto) -> int:
    """Replaces the Gemms that scale nothing, in place, and returns how many; constant weights are transposed now."""
    lift_constants(model)
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    nodes: list[NodeProto] = []
    lowered = 0
    for index, node in enumerate(graph.node):
        parts = _parts(node, weights, f"routecast_gemm_{index}")
        lowered += parts is not None
        nodes += parts or [_copy(node)]
    del graph.node[:]
    graph.node.extend(nodes)
    known = {tensor.name for tensor in graph.initializer}
    graph.initializer.extend(tensor for name, tensor in weights.items() if name not in known)
    return lowered


def _parts(node: NodeProto, weights: dict[str, TensorProto], prefix: str) -> list[NodeProto] | None:
    """The operators that stand for a Gemm, None for what is none or scales; new weights are added to ``weights``."""
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    if node.op_type != "Gemm" or attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0:
        return None
    made: list[NodeProto] = []
    operands = list(node.input[:2])
    for index, flag in enumerate(("transA", "transB")):
        if not attributes.get(flag, 0):
            continue
        name = f"{prefix}_{flag}"
        if operands[index] in weights:
            array = numpy_helper.to_array(weights[operands[index]])
            weights[name] = numpy_helper.from_array(np.ascontiguousarray(array.T), name)
        else:
            made.append(helper.make_node("Transpose", [operands[index]], [name], name=f"{name}_Transpose", perm=[1, 0]))
        operands[index] = name
    bias = node.input[2] if len(node.input) > 2 else ""
    product = f"{prefix}_product" if bias else node.output[0]
    made.append(helper.make_node("MatMul", operands, [product], name=node.name and f"{node.name}_MatMul"))
    if bias:
        made.append(helper.make_node("Add", [product, bias], [node.output[0]], name=node.name and f"{node.name}_Add"))
    return made


def _copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy
