"""Folding: what is constant computed beforehand, and BatchNormalization taken into the weights before it."""

from __future__ import annotations

from importlib import import_module
from typing import ClassVar

from onnx import ModelProto

from routecast.datasets.graph import Graph, Node
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.passes.base import GraphPass, PassContext, PassFailed
from routecast.tuner.passes.constants import lift_constants
from routecast.tuner.patterns import GraphFacts

_CONSTANTS, _NORMS = "form.constants", "form.batchnorm"
_FOLDED = "fold"
_FOLDABLE_INTO = ("Conv", "ConvTranspose", "Gemm")
_RULES = tuple(f"fuse_batchnorm_into_{kind}_rule" for kind in ("conv", "conv_transpose", "gemm"))


class Folding(GraphPass):
    """onnxscript's optimiser (https://github.com/microsoft/onnxscript) and its rules on BatchNormalization."""

    name: ClassVar[str] = "folding"

    def space(self, graph: Graph) -> RouteSpace:
        """A knob for each kind that the graph holds."""
        facts = GraphFacts(graph)
        knobs, left_out = [], {}
        if facts.foldable:
            help_text = "compute what is constant before the build"
            knobs.append(Knob(_CONSTANTS, ("keep", _FOLDED), "keep", help_text, stage="build"))
        else:
            left_out[_CONSTANTS] = "nothing in the graph is constant but its weights"
        if _has_foldable_norm(facts):
            help_text = "take BatchNormalization into the weights of the convolution before it"
            knobs.append(Knob(_NORMS, ("keep", _FOLDED), "keep", help_text, stage="build"))
        else:
            left_out[_NORMS] = "no BatchNormalization alone reads a Conv, ConvTranspose or Gemm with weights of its own"
        return RouteSpace(tuple(knobs), left_out)

    def wanted(self, route: Route) -> bool:
        """Whether anything is to be folded."""
        return _FOLDED in (route.get(_CONSTANTS), route.get(_NORMS))

    def apply(self, model: ModelProto, context: PassContext) -> ModelProto:
        """Folds as the route says.

        Raises:
            PassFailed: no BatchNormalization can be folded, so the route would be another route in disguise.
        """
        import onnx_ir
        from onnxscript import optimizer

        lift_constants(model)
        graph = onnx_ir.serde.deserialize_model(model)
        if context.route.get(_NORMS) == _FOLDED:
            common = import_module("onnxscript.rewriter.rules.common")
            rules = import_module("onnxscript.rewriter.pattern").RewriteRuleSet(
                [getattr(common, name) for name in _RULES]
            )
            if not rules.apply_to_model(graph):
                raise PassFailed("no BatchNormalization can be folded: their weights are shared or no constants")
        if context.route.get(_CONSTANTS) == _FOLDED:
            optimizer.optimize_ir(graph)
        return onnx_ir.serde.serialize_model(graph)


def _has_foldable_norm(facts: GraphFacts) -> bool:
    """Whether some BatchNormalization alone reads the operator before it, whose constant weights nothing else reads."""
    norms = [node for node in facts.graph.nodes if node.op == "BatchNormalization"]
    return any(_foldable(facts, before, norm) for norm in norms for before in facts.before(norm, *_FOLDABLE_INTO))


def _foldable(facts: GraphFacts, before: Node, norm: Node) -> bool:
    alone = (norm.inputs[0], *(tensor for tensor in before.inputs[1:] if tensor >= 0))
    constant = facts.constant_inputs(before)[1:] + facts.constant_inputs(norm)[1:]
    return all(constant) and all(facts.reads[tensor] == 1 for tensor in alone)
