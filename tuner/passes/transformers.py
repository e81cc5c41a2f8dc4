"""Fusing attention, normalisation and activations by ONNX Runtime's transformer optimiser."""

from __future__ import annotations

from typing import ClassVar

from onnx import ModelProto, helper

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
        return fused
