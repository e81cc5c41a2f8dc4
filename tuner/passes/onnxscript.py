"""Folding, rewriting and fusing by onnxscript."""

from __future__ import annotations

from typing import ClassVar

from onnx import ModelProto

from routecast.datasets.graph import Graph
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.passes.base import GraphPass, PassContext

_KNOB = "pass.onnxscript"


class OnnxScript(GraphPass):
    """onnxscript (https://github.com/microsoft/onnxscript): optimiser, rewriter and ONNX Runtime fusions."""

    name: ClassVar[str] = "onnxscript"

    def space(self, graph: Graph) -> RouteSpace:
        """Off, ``fold`` constants, also ``rewrite`` by the default rules, or also ``fuse`` attention."""
        values = ["off", "fold", "rewrite"]
        if {"Softmax", "MatMul"} <= graph.ops or "Attention" in graph.ops:
            values.append("fuse")
        help_text = "fold constants, rewrite or fuse operators with onnxscript before the build"
        return RouteSpace((Knob(_KNOB, tuple(values), "off", help=help_text, stage="build"),))

    def wanted(self, route: Route) -> bool:
        """Whether it is not off."""
        return route.get(_KNOB, "off") != "off"

    def apply(self, model: ModelProto, context: PassContext) -> ModelProto:
        """Runs the parts that the knob names."""
        import onnx_ir
        from onnxscript import optimizer, rewriter
        from onnxscript.rewriter.ort_fusions import optimize_for_ort

        value = context.route[_KNOB]
        graph = onnx_ir.serde.deserialize_model(model)
        optimizer.optimize_ir(graph)
        if value in ("rewrite", "fuse"):
            graph = rewriter.rewrite(graph)
        if value == "fuse":
            graph, _ = optimize_for_ort(graph)
        return onnx_ir.serde.serialize_model(graph)
