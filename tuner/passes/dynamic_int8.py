"""Dynamic quantisation: integer weights, and activations quantised during inference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx import ModelProto

from routecast.datasets.model import INLINE_LIMIT
from routecast.tuner.passes.opset import QUANTISED_OPSET, at_least_opset


def quantize(model: ModelProto, folder: Path, per_channel: bool, exclude: Sequence[str]) -> ModelProto:
    """Quantises the weights of Conv, MatMul, Gemm, LSTM, Gather and attention.

    Convolutions get unsigned weights: ONNX Runtime has no ConvInteger kernel for signed ones.

    Args:
        model: what to quantise.
        folder: an existing folder for intermediate files.
        per_channel: one scale per output channel instead of one per weight.
        exclude: names of operators to leave in floating point.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    target = folder / "dynamic.onnx"
    has_conv = any(node.op_type == "Conv" and node.name not in exclude for node in model.graph.node)
    quantize_dynamic(
        at_least_opset(model, QUANTISED_OPSET),
        target,
        per_channel=per_channel,
        weight_type=QuantType.QUInt8 if has_conv else QuantType.QInt8,
        nodes_to_exclude=list(exclude),
        use_external_data_format=model.ByteSize() > INLINE_LIMIT,
    )
    return onnx.load(target)
