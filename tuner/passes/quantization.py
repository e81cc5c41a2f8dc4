"""Post-training quantisation as TensorRT takes it: symmetric eight-bit Q/DQ pairs, biases in floating point."""

from __future__ import annotations

from typing import ClassVar

from onnx import ModelProto

from routecast.datasets.graph import Graph
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.passes.base import GraphPass, PassContext, PassFailed
from routecast.tuner.passes.constants import lift_constants
from routecast.tuner.passes.exclusions import CONVOLUTIONS, PRODUCTS, exclusion_values, nodes_excluded
from routecast.tuner.passes.modelopt import modelopt_missing, quantize_with_modelopt
from routecast.tuner.passes.symmetric_int8 import quantize_int8
from routecast.tuner.patterns import GraphFacts

_QUANTIZE, _QUANTIZER, _EXCLUDE = "precision.quantize", "precision.quantizer", "precision.exclude"
_OFF, _INT8, _INT8_PRODUCTS, _FP8 = "off", "int8", "int8_products", "fp8"
_QUANTIZERS = ("onnxruntime", "modelopt")
_NO_INT8_CONVOLUTIONS = "the builder has no INT8 convolutions"


class Quantization(GraphPass):
    """INT8 by ONNX Runtime's quantiser or NVIDIA ModelOpt, FP8 (E4M3) by ModelOpt."""

    name: ClassVar[str] = "quantization"

    def __init__(self, *, int8_convolutions: bool = True, fp8_refused: str = "") -> None:
        """Takes what the builder can make.

        Args:
            int8_convolutions: whether it has any; without, int8 is for products alone.
            fp8_refused: why it has no FP8; empty when it has.
        """
        self._int8_convolutions = int8_convolutions
        self._fp8_refused = fp8_refused

    def space(self, graph: Graph) -> RouteSpace:
        """The number format, which library places it, and what stays in floating point."""
        facts = GraphFacts(graph)
        weighted = [node for node in facts.weighted() if graph.tensors[node.inputs[1]].dtype in ("float32", "")]
        if not weighted:
            reason = "the graph has no float32 weights of Conv, MatMul or Gemm to quantise"
            return RouteSpace((), dict.fromkeys((_QUANTIZE, _QUANTIZER, _EXCLUDE), reason))
        formats, left_out = self._formats({node.op for node in weighted})
        if not formats:
            left_out |= dict.fromkeys((_QUANTIZE, _QUANTIZER, _EXCLUDE), "no number format is left to quantise to")
            return RouteSpace((), left_out)
        knobs = [_knob(_QUANTIZE, (_OFF, *formats), "quantise products and convolutions by the inputs")]
        whole = tuple(each for each in formats if each != _INT8_PRODUCTS)
        exclusions = tuple(value for value in exclusion_values(facts) if value != "only_weighted")
        if whole and len(exclusions) > 1:
            knobs.append(_knob(_EXCLUDE, exclusions, "operators that stay in floating point", whole))
        else:
            left_out[_EXCLUDE] = "there is one kind of operator to quantise"
        integers = tuple(each for each in formats if each != _FP8)
        if reason := modelopt_missing():
            left_out[_QUANTIZER] = reason
        elif integers:
            knobs.append(_knob(_QUANTIZER, _QUANTIZERS, "which library places the INT8 Q/DQ pairs", integers))
        else:
            left_out[_QUANTIZER] = left_out[f"{_QUANTIZE}={_INT8}"]
        return RouteSpace(tuple(knobs), left_out)

    def _formats(self, ops: set[str]) -> tuple[tuple[str, ...], dict[str, str]]:
        """The formats that a graph with weights of these operators can be quantised to, and why not the others."""
        formats, left_out = [], {}
        if self._int8_convolutions or ops.isdisjoint(CONVOLUTIONS):
            formats.append(_INT8)
        else:
            left_out[f"{_QUANTIZE}={_INT8}"] = _NO_INT8_CONVOLUTIONS
            if not ops.isdisjoint(PRODUCTS):
                formats.append(_INT8_PRODUCTS)
        if reason := self._fp8_refused or modelopt_missing():
            left_out[f"{_QUANTIZE}={_FP8}"] = reason
        else:
            formats.append(_FP8)
        return tuple(formats), left_out

    def wanted(self, route: Route) -> bool:
        """Whether to quantise."""
        return route.get(_QUANTIZE, _OFF) != _OFF

    def apply(self, model: ModelProto, context: PassContext) -> ModelProto:
        """Quantises a model as the route says.

        Raises:
            PassFailed: there are no input sets, the library failed, or it found nothing to quantise, so that the route
                would be another route in disguise.
        """
        if not context.calibration:
            raise PassFailed("quantisation needs input sets to calibrate on: give at least one")
        quantized = _quantize(model, context)
        if all(node.op_type != "QuantizeLinear" for node in quantized.graph.node):
            raise PassFailed("there is nothing that pays to quantise")
        return quantized


def _knob(name: str, values: tuple[str, ...], help_text: str, formats: tuple[str, ...] = ()) -> Knob:
    """A knob whose default is its first value; it acts under the formats only when some are given."""
    requires = {_QUANTIZE: formats} if formats else {}
    return Knob(name, values, values[0], help_text, stage="build", changes_numerics=True, requires=requires)


def _quantize(model: ModelProto, context: PassContext) -> ModelProto:
    route = context.route
    lift_constants(model)
    excluded = nodes_excluded(model, route.get(_EXCLUDE, "none"))
    if route[_QUANTIZE] == _FP8:
        return quantize_with_modelopt(model, context, "fp8", excluded)
    products_only = route[_QUANTIZE] == _INT8_PRODUCTS
    if route.get(_QUANTIZER) == _QUANTIZERS[1]:
        return quantize_with_modelopt(model, context, "int8", excluded, PRODUCTS if products_only else ())
    return quantize_int8(model, context, excluded, PRODUCTS if products_only else (*CONVOLUTIONS, *PRODUCTS))
