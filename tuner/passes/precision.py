"""Precision policies: floating point as given, or post-training quantisation to eight-bit integers."""

from __future__ import annotations

from typing import ClassVar

from onnx import ModelProto

from routecast.datasets.graph import Graph
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.passes.base import GraphPass, PassContext, PassFailed
from routecast.tuner.passes.constants import lift_constants
from routecast.tuner.passes.exclusions import exclusion_values, nodes_excluded
from routecast.tuner.patterns import GraphFacts

_POLICY = "precision.policy"
_DEFAULT = "fp32"
_DYNAMIC = "dynamic_int8"
_STATIC = "static_int8"
_DETAILS = ("precision.exclude", "precision.per_channel")
_STATIC_DETAILS = ("precision.calibration", "precision.activation_type")


class Precision(GraphPass):
    """Quantises weights and activations with ONNX Runtime's quantiser.

    ``dynamic_int8`` finds the range of each activation during inference, ``static_int8`` beforehand, on the
    user's input sets, and marks it in the graph with QuantizeLinear and DequantizeLinear.
    """

    name: ClassVar[str] = "precision"

    def space(self, graph: Graph) -> RouteSpace:
        """The policy, what to leave in floating point, and how to choose the integers."""
        facts = GraphFacts(graph)
        weighted = [node for node in facts.weighted() if graph.tensors[node.inputs[1]].dtype == "float32"]
        if not weighted and not facts.has("LSTM"):
            reason = "the graph has no float32 weights of Conv, MatMul, Gemm or LSTM to quantise"
            return RouteSpace((), dict.fromkeys((_POLICY, *_DETAILS, *_STATIC_DETAILS), reason))
        if not weighted:
            left_out = dict.fromkeys(_STATIC_DETAILS, "static quantisation does not cover LSTM")
            left_out[_DETAILS[0]] = "there is one kind of operator to quantise"
            return RouteSpace((_policy(_DYNAMIC), _per_channel(_DYNAMIC)), left_out)
        exclude = Knob(
            _DETAILS[0], exclusion_values(facts), "none", "operators that stay in floating point",
            stage="build", changes_numerics=True, requires={_POLICY: (_DYNAMIC, _STATIC)},
        )  # fmt: skip
        details = (exclude, _per_channel(_DYNAMIC, _STATIC), *_static_knobs())
        return RouteSpace((_policy(_DYNAMIC, _STATIC), *details))

    def wanted(self, route: Route) -> bool:
        """Whether the policy is not floating point as given."""
        return route.get(_POLICY, _DEFAULT) != _DEFAULT

    def apply(self, model: ModelProto, context: PassContext) -> ModelProto:
        """Quantises a model as the route says."""
        route = context.route
        lift_constants(model)
        per_channel = route.get("precision.per_channel", "off") == "on"
        exclude = route.get("precision.exclude", "none")
        if route[_POLICY] == _DYNAMIC:
            from routecast.tuner.passes.dynamic_int8 import quantize

            return quantize(model, context.folder, per_channel, nodes_excluded(model, exclude))
        if not context.calibration:
            raise PassFailed("static quantisation needs input sets to calibrate on; give at least one")
        from routecast.tuner.passes.static_int8 import StaticConfig, quantize_static

        config = StaticConfig(
            per_channel=per_channel,
            method=route.get("precision.calibration", "minmax"),
            activation_type=route.get("precision.activation_type", "uint8"),
            exclude=exclude,
        )
        return quantize_static(model, context.folder, context.calibration, config)


def _policy(*policies: str) -> Knob:
    return Knob(
        _POLICY, (_DEFAULT, *policies), _DEFAULT, "number format of weights and activations",
        stage="build", changes_numerics=True,
    )  # fmt: skip


def _per_channel(*policies: str) -> Knob:
    return Knob(
        _DETAILS[1], ("off", "on"), "off",
        "one scale per output channel of a weight instead of one per weight", stage="build",
        changes_numerics=True, requires={_POLICY: policies},
    )  # fmt: skip


def _static_knobs() -> tuple[Knob, Knob]:
    requires = {_POLICY: (_STATIC,)}
    return (
        Knob(
            _STATIC_DETAILS[0], ("minmax", "entropy", "percentile"), "minmax",
            "how the range of an activation follows from the values seen", "build", True, requires,
        ),
        Knob(
            _STATIC_DETAILS[1], ("uint8", "int8"), "uint8",
            "integer type of activations", "build", True, requires,
        ),
    )  # fmt: skip
