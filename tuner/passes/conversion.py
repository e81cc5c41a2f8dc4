"""Moving a model to another version of ONNX's operator set."""

from __future__ import annotations

from typing import ClassVar

from onnx import ModelProto, version_converter

from routecast.datasets.graph import Graph
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.passes.base import GraphPass, PassContext, PassFailed

_KNOB = "form.opset"
_TARGETS = (18, 20, 23)


class Conversion(GraphPass):
    """onnx's version converter; newer versions give importers single operators where older ones had none."""

    name: ClassVar[str] = "conversion"

    def space(self, graph: Graph) -> RouteSpace:
        """Newer versions that changed many operators: 18 (axes as inputs), 20 (Gelu), 23 (Attention)."""
        targets = tuple(str(version) for version in _TARGETS if version > graph.opset)
        if not targets:
            return RouteSpace((), {_KNOB: f"the model is at opset {graph.opset} already"})
        help_text = "convert to this version of ONNX's operator set before the build"
        return RouteSpace((Knob(_KNOB, ("keep", *targets), "keep", help_text, stage="build"),))

    def wanted(self, route: Route) -> bool:
        """Whether a version is asked for."""
        return route.get(_KNOB, "keep") != "keep"

    def apply(self, model: ModelProto, context: PassContext) -> ModelProto:
        """Converts a model to the version."""
        return convert_opset(model, int(context.route[_KNOB]))


def opset_of(model: ModelProto) -> int:
    """Version of ONNX's own operator set that a model uses."""
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)


def convert_opset(model: ModelProto, version: int) -> ModelProto:
    """The model at ``version`` or, when it is newer already, as it is.

    Raises:
        PassFailed: the converter cannot convert one of its operators.
    """
    if opset_of(model) >= version:
        return model
    try:
        return version_converter.convert_version(model, version)
    except RuntimeError as error:  # what onnx's C++ code raises
        raise PassFailed(f"opset {opset_of(model)} to {version}: {error}") from error
