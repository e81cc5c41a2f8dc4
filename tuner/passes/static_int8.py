"""Static quantisation: ranges of activations from calibration, written into the graph as Q/DQ pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import ModelProto

from routecast.datasets.model import INLINE_LIMIT
from routecast.tuner.passes.exclusions import nodes_excluded
from routecast.tuner.passes.opset import QUANTISED_OPSET, at_least_opset

if TYPE_CHECKING:
    from onnxruntime.quantization.calibrate import TensorsData

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
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared, target = folder / "prepared.onnx", folder / "static.onnx"
    external = model.ByteSize() > INLINE_LIMIT
    # Folds BatchNormalization and constants first; with fixed shapes, symbolic inference has nothing to add.
    # Given the model itself instead of a file, it would leave the model without its weights.
    given = folder / "given.onnx"
    onnx.save_model(model, given, save_as_external_data=external)
    quant_pre_process(given, prepared, skip_symbolic_shape=True, save_as_external_data=external)
    model = at_least_opset(onnx.load(prepared), QUANTISED_OPSET)
    excluded = nodes_excluded(model, config.exclude)
    onnx.save_model(model, prepared, save_as_external_data=external)
    quantizer = QDQQuantizer(
        model,
        config.per_channel,
        False,  # reduce_range: only processors without integer dot products need it
        QuantType.QInt8,
        getattr(QuantType, {"uint8": "QUInt8", "int8": "QInt8"}[config.activation_type]),
        _ranges(prepared, calibration, config.method, folder, external),
        [],
        excluded,
        _op_types(),
        {},
    )
    quantizer.quantize_model()
    quantizer.model.save_model_to_file(str(target), external)
    return onnx.load(target)


def _op_types() -> list[str]:
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    return sorted({*QLinearOpsRegistry, *QDQRegistry})


def _ranges(model: Path, calibration: Sequence[Path], method: str, folder: Path, external: bool) -> TensorsData:
    from onnxruntime.quantization import CalibrationMethod
    from onnxruntime.quantization.calibrate import create_calibrator

    calibrator = create_calibrator(
        model,
        _op_types(),
        str(folder / "augmented.onnx"),
        getattr(CalibrationMethod, _METHODS[method]),
        external,
        extra_options=_HISTOGRAMS.get(method, {}),
    )
    inputs = {value.name for value in onnx.load(model, load_external_data=False).graph.input}
    calibrator.collect_data(_InputSets(calibration, inputs))
    return calibrator.compute_data()


_METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}

# By default, with 128 bins for 128 levels, the entropy method has one range to choose from: the widest. More
# bins cost time: it compares as many candidate ranges per activation as half the bins exceed half the levels.
_HISTOGRAMS = {"entropy": {"num_bins": 256, "num_quantized_bins": 128}}


class _InputSets:
    """Hands input sets to the calibrator one after the other, as its ``CalibrationDataReader`` does."""

    def __init__(self, calibration: Sequence[Path], inputs: set[str]) -> None:
        self._left = iter(calibration)
        self._inputs = inputs

    def get_next(self) -> dict[str, Array] | None:
        """The next input set, None after the last."""
        path = next(self._left, None)
        if path is None:
            return None
        with np.load(path) as arrays:
            return {name: arrays[name] for name in arrays.files if name in self._inputs}
