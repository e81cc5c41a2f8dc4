"""Fusing attention, normalisation and activations by ONNX Runtime's transformer optimiser."""

from __future__ import annotations

from typing import ClassVar

from onnx import ModelProto, TensorProto, defs, helper, shape_inference

from routecast.datasets.graph import Graph
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.passes.base import GraphPass, PassContext
from routecast.tuner.patterns import GraphFacts

_KNOB = "pass.transformers"
_FUSED_DOMAIN = "com.microsoft"


class TransformerFusion(GraphPass):
    """``onnxruntime.transformers.optimizer``: fusions for named kinds of transformer."""

    name: ClassVar[str] = "transformers"

    def space(self, graph: Graph) -> RouteSpace:
        """Off, or the kind of transformer whose fusions are tried; only for graphs with attention."""
        facts = GraphFacts(graph)
        attention = facts.follows("Softmax", "MatMul", hops=2)
        if not attention:
            return RouteSpace((), {_KNOB: "the graph has no attention: no MatMul after a Softmax"})
        kinds = ["bert"]
        if facts.has("Conv"):
            kinds += ["vit", "unet"] if facts.has("InstanceNormalization", "GroupNormalization") else ["vit"]
        if facts.has("Where", "Trilu", "Split"):
            kinds.append("gpt2")
        help_text = "fuse attention and normalisation as ONNX Runtime's optimiser does for this kind of model"
        return RouteSpace((Knob(_KNOB, ("off", *kinds), "off", help=help_text, stage="build"),))

    def wanted(self, route: Route) -> bool:
        """Whether it is not off."""
        return route.get(_KNOB, "off") != "off"

    def apply(self, model: ModelProto, context: PassContext) -> ModelProto:
        """Runs the fusions; ONNX Runtime's own graph optimisation is left to the session."""
        from onnxruntime.transformers.optimizer import optimize_model

        fused: ModelProto = optimize_model(model, context.route[_KNOB], opt_level=0, use_gpu=False).model
        if all(entry.domain != _FUSED_DOMAIN for entry in fused.opset_import):
            fused.opset_import.append(helper.make_opsetid(_FUSED_DOMAIN, 1))
        return _typed(fused)


def _typed(model: ModelProto) -> ModelProto:
    """The model with the types that follow from its fused operators, which quantisers ask for.

    ONNX's inference stops at operators that ONNX does not have in this version: those of ONNX Runtime, and layer
    normalisation before version 17. In a network of float32 they give float32.
    """
    versions = {entry.domain: entry.version for entry in model.opset_import}
    known = {value.name for value in (*model.graph.value_info, *model.graph.output)}
    for node in model.graph.node:
        foreign = not defs.has(node.op_type, versions.get(node.domain, 1), node.domain)
        if foreign and node.output[0] not in known:
            model.graph.value_info.append(helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None))
    return shape_inference.infer_shapes(model)
