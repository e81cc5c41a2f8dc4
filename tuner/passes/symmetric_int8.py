"""Static eight-bit quantisation by ONNX Runtime as TensorRT wants it: symmetric and signed, with Q/DQ pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

from routecast.datasets.model import INLINE_LIMIT
from routecast.tuner.backends.base import Array
from routecast.tuner.passes.base import PassContext


def quantize_int8(model: ModelProto, context: PassContext, excluded: Sequence[str], ops: Sequence[str]) -> ModelProto:
    """Quantises a model, calibrated on the input sets, with one scale per output channel of a weight.

    Args:
        model: what to quantise.
        context: input sets and a folder.
        excluded: names of operators to leave in floating point.
        ops: types of operators to quantise.
    """
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared, target = context.folder / "prepared.onnx", context.folder / "int8.onnx"
    external = model.ByteSize() > INLINE_LIMIT
    quant_pre_process(model, prepared, skip_symbolic_shape=True, skip_optimization=True, save_as_external_data=external)
    model = onnx.load(prepared)
    quantization.quantize_static(
        model,
        target,
        _reader(context.calibration, {value.name for value in model.graph.input}),
        op_types_to_quantize=list(ops),
        per_channel=True,
        activation_type=quantization.QuantType.QInt8,
        weight_type=quantization.QuantType.QInt8,
        nodes_to_exclude=list(excluded),
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
