"""Folding, merging and shape simplification by onnxslim."""

from __future__ import annotations

from typing import ClassVar

from onnx import ModelProto

from routecast.datasets.graph import Graph
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.passes.base import GraphPass, PassContext, PassFailed

_KNOB = "pass.onnxslim"


class OnnxSlim(GraphPass):
    """onnxslim (https://github.com/inisis/OnnxSlim): folds constants, merges and removes operators."""

    name: ClassVar[str] = "onnxslim"

    def space(self, graph: Graph) -> RouteSpace:
        """One switch."""
        help_text = "fold constants, merge and remove operators with onnxslim before the build"
        return RouteSpace((Knob(_KNOB, ("off", "on"), "off", help=help_text, stage="build"),))

    def wanted(self, route: Route) -> bool:
        """Whether the switch is on."""
        return route.get(_KNOB, "off") == "on"

    def apply(self, model: ModelProto, context: PassContext) -> ModelProto:
        """Runs onnxslim."""
        import onnxslim

        slim = onnxslim.slim(model, model_check=False)
        if not isinstance(slim, ModelProto):
            raise PassFailed("onnxslim returned no model")
        return slim
