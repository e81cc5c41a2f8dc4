"""Static eight-bit quantisation as TensorRT wants it: symmetric and signed, with Q/DQ pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx import ModelProto

from routecast.datasets.graph import Graph
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.backends.base import Array
from routecast.tuner.passes.base import GraphPass, PassContext, PassFailed
from routecast.tuner.passes.exclusions import exclusion_values, nodes_excluded
from routecast.tuner.patterns import GraphFacts

_QUANTIZE, _EXCLUDE = "precision.quantize", "precision.exclude"
_OPS = ["Conv", "ConvTranspose", "MatMul", "Gemm"]
_INLINE_LIMIT = 1_500_000_000


class SymmetricInt8(GraphPass):
    """ONNX Runtime's static quantiser: symmetric int8, one scale per output channel of a weight."""

    name: ClassVar[str] = "symmetric_int8"

    def space(self, graph: Graph) -> RouteSpace:
        """A switch, and what stays in floating point."""
        facts = GraphFacts(graph)
        if not any(graph.tensors[node.inputs[1]].dtype in ("float32", "") for node in facts.weighted()):
            reason = "the graph has no float32 weights of Conv, MatMul or Gemm to quantise"
            return RouteSpace((), {_QUANTIZE: reason, _EXCLUDE: reason})
        quantize = Knob(
            _QUANTIZE, ("off", "int8"), "off", "quantise products and convolutions to int8 by the inputs",
            stage="build", changes_numerics=True,
        )  # fmt: skip
        values = tuple(value for value in exclusion_values(facts) if value != "only_weighted")
        if len(values) == 1:
            return RouteSpace((quantize,), {_EXCLUDE: "there is one kind of operator to quantise"})
        exclude = Knob(
            _EXCLUDE, values, "none", "operators that stay in floating point",
            stage="build", changes_numerics=True, requires={_QUANTIZE: ("int8",)},
        )  # fmt: skip
        return RouteSpace((quantize, exclude))

    def wanted(self, route: Route) -> bool:
        """Whether to quantise."""
        return route.get(_QUANTIZE, "off") == "int8"

    def apply(self, model: ModelProto, context: PassContext) -> ModelProto:
        """Quantises a model as the route says."""
        from onnxruntime import quantization
        from onnxruntime.quantization.shape_inference import quant_pre_process

        if not context.calibration:
            raise PassFailed("int8 needs input sets to calibrate on: give at least one")
        prepared, target = context.folder / "prepared.onnx", context.folder / "int8.onnx"
        external = model.ByteSize() > _INLINE_LIMIT
        quant_pre_process(
            model, prepared, skip_symbolic_shape=True, skip_optimization=True, save_as_external_data=external
        )
        model = onnx.load(prepared)
        excluded = nodes_excluded(model, context.route.get(_EXCLUDE, "none"))
        quantization.quantize_static(
            model,
            target,
            _reader(context.calibration, {value.name for value in model.graph.input}),
            op_types_to_quantize=_OPS,
            per_channel=True,
            activation_type=quantization.QuantType.QInt8,
            weight_type=quantization.QuantType.QInt8,
            nodes_to_exclude=excluded,
            use_external_data_format=external,
            # TensorRT takes no zero points, and biases only in floating point.
            extra_options={"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False},
        )
        return onnx.load(target)


def _reader(calibration: Sequence[Path], names: set[str]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class InputSets(CalibrationDataReader):  # type: ignore[misc]
        """Hands the input sets to the calibrator, one after the other."""

        def __init__(self) -> None:
            self._left = iter(calibration)

        def get_next(self) -> dict[str, Array] | None:
            """The next input set, None at the end."""
            path = next(self._left, None)
            if path is None:
                return None
            with np.load(path) as arrays:
                return {name: arrays[name] for name in arrays.files if name in names}

    return InputSets()
