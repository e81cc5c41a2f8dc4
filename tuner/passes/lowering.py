"""Lowering: operators replaced by their ONNX function bodies, made of simpler operators."""

from __future__ import annotations

from typing import ClassVar

from onnx import ModelProto, helper, inliner, shape_inference

from routecast.datasets.graph import Graph
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.passes.base import GraphPass, PassContext, PassFailed

# Operators that compilers have their own kernels or patterns for, by knob; each has a function body in ONNX.
_KNOBS = {
    "form.layernorm": "LayerNormalization",
    "form.rmsnorm": "RMSNormalization",
    "form.groupnorm": "GroupNormalization",
    "form.gelu": "Gelu",
    "form.hardswish": "HardSwish",
    "form.mish": "Mish",
    "form.softplus": "Softplus",
    "form.attention": "Attention",
}
LOWERED = "lower"


class Lowering(GraphPass):
    """onnx's inliner on the chosen operators, then constant folding, since function bodies compute shapes."""

    name: ClassVar[str] = "lowering"

    def space(self, graph: Graph) -> RouteSpace:
        """One knob per operator that the graph holds."""
        knobs = tuple(
            Knob(name, ("keep", LOWERED), "keep", f"replace {op} by the operators it is made of", stage="build")
            for name, op in _KNOBS.items()
            if op in graph.ops
        )
        left_out = {name: f"the graph holds no {op}" for name, op in _KNOBS.items() if op not in graph.ops}
        return RouteSpace(knobs, left_out)

    def wanted(self, route: Route) -> bool:
        """Whether any operator is to be lowered."""
        return any(route.get(name) == LOWERED for name in _KNOBS)

    def apply(self, model: ModelProto, context: PassContext) -> ModelProto:
        """Replaces the operators and folds what became constant."""
        ops = [op for name, op in _KNOBS.items() if context.route.get(name) == LOWERED]
        model = _typed(model)
        lowered = inliner.inline_selected_functions(model, [("", op) for op in ops], False, True)
        left = {node.op_type for node in lowered.graph.node} & set(ops)
        if left:
            raise PassFailed(f"no function body for {', '.join(sorted(left))} at this model's opset")
        return fold(lowered)


def _typed(model: ModelProto) -> ModelProto:
    """The model with the type of every tensor written down, weights among them: the inliner asks for them."""
    typed = shape_inference.infer_shapes(model)
    known = {value.name for value in (*typed.graph.input, *typed.graph.value_info)}
    typed.graph.value_info.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in typed.graph.initializer
        if tensor.name not in known
    )
    return typed


def fold(model: ModelProto) -> ModelProto:
    """Computes what is constant, with onnxscript's optimiser."""
    import onnx_ir
    from onnxscript import optimizer

    graph = onnx_ir.serde.deserialize_model(model)
    optimizer.optimize_ir(graph)
    return onnx_ir.serde.serialize_model(graph)
