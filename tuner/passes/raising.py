"""Raising: patterns of simple operators replaced by the one operator that means them.

The patterns are onnxscript's own (https://github.com/microsoft/onnxscript), which fuse for ONNX Runtime; here
they end in ONNX's standard operators, or in attention written another way.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

from onnx import ModelProto, shape_inference

from routecast.datasets.graph import Graph, Node
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.passes.base import GraphPass, PassContext, PassFailed
from routecast.tuner.passes.conversion import convert_opset
from routecast.tuner.patterns import GraphFacts

_GELU, _NORM, _ATTENTION = "form.gelu", "form.layernorm", "form.attention"
RAISED, PLAIN = "raise", "plain"
_SCALES = ("Mul", "Div")
# The first version of ONNX's operator set that has the operator, or that the pattern is written for.
_OPSETS = {(_GELU, RAISED): 20, (_NORM, RAISED): 18, (_ATTENTION, RAISED): 23, (_ATTENTION, PLAIN): 13}


class Raising(GraphPass):
    """Gelu, LayerNormalization and Attention from their patterns; attention also to its plain form."""

    name: ClassVar[str] = "raising"

    def space(self, graph: Graph) -> RouteSpace:
        """A knob per operator whose parts the graph holds."""
        facts = GraphFacts(graph)
        found = {
            _GELU: facts.has("Erf") and not facts.has("Gelu"),
            _NORM: facts.follows("ReduceMean", "Sub") and facts.has("Sqrt") and not facts.has("LayerNormalization"),
            _ATTENTION: facts.follows("Softmax", "MatMul")
            and bool(_attention_products(facts))
            and not facts.has("Attention"),
        }
        values = {
            _GELU: (RAISED,),
            _NORM: (RAISED,),
            _ATTENTION: (RAISED, PLAIN) if _scaled_before(facts) else (RAISED,),
        }
        helps = {
            _GELU: "replace x * (1 + erf(x / sqrt 2)) / 2 by Gelu",
            _NORM: "replace the pattern of layer normalisation by LayerNormalization",
            _ATTENTION: "replace the pattern of attention by Attention, or scale once, after its product",
        }
        knobs = tuple(
            Knob(name, ("keep", *values[name]), "keep", helps[name], stage="build")
            for name, here in found.items()
            if here
        )
        left_out = {name: "the graph does not hold the pattern" for name, here in found.items() if not here}
        return RouteSpace(knobs, left_out)

    def wanted(self, route: Route) -> bool:
        """Whether any pattern is to be replaced."""
        return any(route.get(name) == value for name, value in _OPSETS)

    def apply(self, model: ModelProto, context: PassContext) -> ModelProto:
        """Replaces the patterns.

        Raises:
            PassFailed: a pattern occurs nowhere, so the route would be another route in disguise.
        """
        import onnx_ir
        from onnxscript import optimizer

        wanted = [key for key in _OPSETS if context.route.get(key[0]) == key[1]]
        model = convert_opset(model, max(_OPSETS[key] for key in wanted))
        graph = onnx_ir.serde.deserialize_model(shape_inference.infer_shapes(model, data_prop=True))
        optimizer.optimize_ir(graph)
        for name, value in wanted:
            if not _rules()[name, value].apply_to_model(graph):
                raise PassFailed(f"{name}={value}: the pattern is not in the graph")
        optimizer.optimize_ir(graph)
        return onnx_ir.serde.serialize_model(graph)


def _attention_products(facts: GraphFacts) -> list[Node]:
    """Products of query and key: a Softmax of four dimensions comes after each, a scale and a mask at most between."""
    found = []
    for node in facts.graph.nodes:
        shape = facts.graph.tensors[node.outputs[0]].shape
        if node.op == "Softmax" and shape is not None and len(shape) == 4:
            masked = facts.before(node, "Add")
            scaled = [each for one in (node, *masked) for each in (one, *_scales(facts, one))]
            found += [product for one in scaled for product in facts.before(one, "MatMul")]
    return found


def _scaled_before(facts: GraphFacts) -> bool:
    """Whether query or key is scaled before their product."""
    return any(_scales(facts, product) for product in _attention_products(facts))


def _scales(facts: GraphFacts, node: Node) -> list[Node]:
    """The operators just before that scale by one number; by one for each head is no attention that ONNX knows."""

    def is_number(index: int) -> bool:
        shape = facts.graph.tensors[index].shape if index >= 0 else None
        return shape is not None and math.prod(shape) == 1

    return [each for each in facts.before(node, *_SCALES) if any(map(is_number, each.inputs))]


@cache
def _rules() -> dict[tuple[str, str], Any]:
    """The rewrite rules by knob and value; made once, since building them costs more than applying them."""
    pattern = _rewriter("pattern")

    attention = _attention_rules(pattern, _rewriter("ort_fusions.sdpa"))
    return {
        (_GELU, RAISED): pattern.RewriteRuleSet(_gelu_rules(), commute=True),
        (_NORM, RAISED): pattern.RewriteRuleSet(_norm_rules(pattern, _rewriter("rules.fusion._layer_norm"))),
        (_ATTENTION, RAISED): pattern.RewriteRuleSet([attention[RAISED]]),
        (_ATTENTION, PLAIN): pattern.RewriteRuleSet([attention[PLAIN]]),
    }


def _rewriter(module: str) -> Any:
    """A module of onnxscript's rewriter, which is typed in parts only."""
    return import_module(f"onnxscript.rewriter.{module}")


def _gelu_rules() -> list[Any]:
    pattern = _rewriter("pattern")

    root = math.sqrt(2)

    def gelu(op: Any, x: Any) -> Any:
        return op.Gelu(x)

    patterns = (
        lambda op, x: 0.5 * (x * (op.Erf(x / root) + 1.0)),
        lambda op, x: x * (0.5 * (op.Erf(x / root) + 1.0)),
        lambda op, x: (x * 0.5) * (op.Erf(x / root) + 1.0),
        lambda op, x: (x * 0.5) * (op.Erf(x * (1 / root)) + 1.0),
        lambda op, x: 0.5 * (x * (op.Erf(x * (1 / root)) + 1.0)),
    )
    return [pattern.RewriteRule(each, gelu) for each in patterns]


def _norm_rules(pattern: Any, norms: Any) -> list[Any]:
    """The rules of onnxscript, with the attribute keepdims also where it is left at its default."""

    class Norm(norms.LayerNormFusion):  # type: ignore[misc]
        """Ends in LayerNormalization over the last axis."""

        def pattern(self, op: Any, x: Any, scale: Any, epsilon: Any) -> Any:
            """(x - mean) / sqrt(variance + epsilon) * scale."""
            mean = op.ReduceMean(x, [-1], _allow_other_attributes=True, _outputs=["mean"])
            deviation = op.Sub(x, mean)
            squared = pattern.OrValue([op.Mul(deviation, deviation), op.Pow(deviation, 2)])
            variance = op.ReduceMean(squared, [-1], _allow_other_attributes=True)
            root = op.Sqrt(op.Add(variance, epsilon))
            normalised = pattern.OrValue([op.Mul(deviation, op.Reciprocal(root)), op.Div(deviation, root)])
            return op.Mul(normalised, scale)

        def check(self, context: Any, x: Any, epsilon: Any, mean: Any, **bindings: Any) -> Any:
            """Types, a constant epsilon, and axes that stay."""
            keepdims = mean.producer().attributes.get("keepdims")
            if keepdims is not None and keepdims.as_int() != 1:
                return pattern.MatchResult().fail("the mean drops its axis")
            return super().check(context, x=x, epsilon=epsilon, **bindings)

    return [Norm.rule(), norms.LayerNormBiasFusion.rule()]


def _attention_rules(pattern: Any, sdpa: Any) -> dict[str, Any]:
    """softmax(scale * Q K^T + mask) V, however the scale is spread over Q, K and their product."""

    class Raise(sdpa.SDPA):  # type: ignore[misc]
        """Ends in ONNX's Attention."""

        def rewrite(self, op: Any, *, query: Any, key: Any, value: Any, mask: Any, key_format: str, **_: Any) -> Any:
            """Attention of four-dimensional query, key and value."""
            key = op.Transpose(key, perm=[0, 2, 1, 3]) if key_format == "BSHd" else key
            arguments = (query, key, value) if mask is None else (query, key, value, mask)
            attributes = {} if self._scale is None else {"scale": float(self._scale)}
            return op.Attention(*arguments, **attributes)

    class Plain(sdpa.SDPA):  # type: ignore[misc]
        """Ends in MatMul, one scale, Softmax, MatMul."""

        def check(self, context: Any, query_scaling: str, key_scaling: str, **bindings: Any) -> Any:
            """Only where a scale stands before the product: else the result would match for ever."""
            if query_scaling == key_scaling == "None":
                return pattern.MatchResult().fail("the scale stands after the product already")
            return super().check(context, query_scaling=query_scaling, key_scaling=key_scaling, **bindings)

        def rewrite(self, op: Any, *, query: Any, key: Any, value: Any, mask: Any, key_format: str, **_: Any) -> Any:
            """The product scaled once."""
            import onnx_ir

            scale = self._scale if self._scale is not None else 1.0 / math.sqrt(query.shape[-1])
            transposed = op.Transpose(key, perm=[0, 2, 3, 1] if key_format == "BSHd" else [0, 1, 3, 2])
            factor = op.Constant(value=onnx_ir.tensor(float(scale), dtype=query.dtype))
            scores = op.Mul(op.MatMul(query, transposed), factor)
            scores = scores if mask is None else op.Add(scores, mask)
            return op.MatMul(op.Softmax(scores, axis=-1), value)

    return {RAISED: Raise.rule(), PLAIN: Plain.rule()}
