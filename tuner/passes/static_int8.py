"""Static quantisation: ranges of activations from calibration, written into the graph as Q/DQ pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import ModelProto

from routecast.tuner.passes.exclusions import nodes_excluded

if TYPE_CHECKING:
    from routecast.tuner.backends.base import Array


@dataclass(frozen=True)
class StaticConfig:
    """How to quantise.

    Attributes:
        per_channel: one scale per output channel of a weight instead of one per weight.
        method: ``minmax``, ``entropy`` or ``percentile``.
        activation_type: ``uint8`` or ``int8``.
        exclude: one of ``exclusion_values``.
    """

    per_channel: bool = False
    method: str = "minmax"
    activation_type: str = "uint8"
    exclude: str = "none"


def quantize_static(model: ModelProto, folder: Path, calibration: Sequence[Path], config: StaticConfig) -> ModelProto:
    """Quantises a model to eight-bit integers with Q/DQ pairs.

    Args:
        model: what to quantise.
        folder: an existing folder for intermediate files.
        calibration: input sets, ``.npz`` files with one array per input; all are used.
        config: how.
    """
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared, target = folder / "prepared.onnx", folder / "static.onnx"
    external = model.ByteSize() > 1_500_000_000
    # Folds BatchNormalization and constants first; the shapes are fixed, so symbolic inference has nothing to add.
    quant_pre_process(model, prepared, skip_symbolic_shape=True, save_as_external_data=external)
    model = onnx.load(prepared)
    excluded = nodes_excluded(model, config.exclude)
    inputs = {value.name for value in model.graph.input}
    quantization.quantize_static(
        model,
        target,
        _reader(calibration, inputs),
        per_channel=config.per_channel,
        activation_type=getattr(quantization.QuantType, {"uint8": "QUInt8", "int8": "QInt8"}[config.activation_type]),
        weight_type=quantization.QuantType.QInt8,
        nodes_to_exclude=excluded,
        calibrate_method=getattr(quantization.CalibrationMethod, _METHODS[config.method]),
        use_external_data_format=external,
    )
    return onnx.load(target)


_METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}


def _reader(calibration: Sequence[Path], inputs: set[str]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class InputSets(CalibrationDataReader):  # type: ignore[misc]
        """Hands the input sets to the calibrator, one after the other."""

        def __init__(self) -> None:
            self._left = iter(calibration)

        def get_next(self) -> dict[str, Array] | None:
            path = next(self._left, None)
            if path is None:
                return None
            with np.load(path) as arrays:
                return {name: arrays[name] for name in arrays.files if name in inputs}

    return InputSets()
