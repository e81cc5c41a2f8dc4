"""Raising the version of ONNX's operator set."""

from __future__ import annotations

from onnx import ModelProto, version_converter

QUANTISED_OPSET = 13
"""The first version whose QuantizeLinear and DequantizeLinear know one scale per channel."""

_ONNX_DOMAINS = ("", "ai.onnx")


def at_least_opset(model: ModelProto, version: int) -> ModelProto:
    """The model itself when its operator set is at least ``version``, else the model converted to it."""
    own = max((entry.version for entry in model.opset_import if entry.domain in _ONNX_DOMAINS), default=1)
    return model if own >= version else version_converter.convert_version(model, version)
