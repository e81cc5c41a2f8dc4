"""Static quantisation: ranges of activations from calibration, written into the graph as Q/DQ pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import ModelProto

from routecast.datasets.model import INLINE_LIMIT
from routecast.tuner.passes.exclusions import nodes_excluded
from routecast.tuner.passes.opset import QUANTISED_OPSET, at_least_opset

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
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared, target = folder / "prepared.onnx", folder / "static.onnx"
    external = model.ByteSize() > INLINE_LIMIT
    # Folds BatchNormalization and constants first; the shapes are fixed, so symbolic inference has nothing to add.
    quant_pre_process(model, prepared, skip_symbolic_shape=True, save_as_external_data=external)
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


def _ranges(model: Path, calibration: Sequence[Path], method: str, folder: Path, external: bool) -> Any:
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
    calibrator.collect_data(_reader(calibration, inputs))
    return calibrator.compute_data()


_METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}

# With ONNX Runtime's own 128 bins for 128 levels, the entropy method has one range to choose from: the widest.
_HISTOGRAMS = {"entropy": {"num_bins": 512, "num_quantized_bins": 128}}


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
