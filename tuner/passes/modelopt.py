"""NVIDIA ModelOpt (https://github.com/NVIDIA/Model-Optimizer): Q/DQ pairs placed as TensorRT fuses them.

It runs in a process of its own, through its command line: it changes ONNX Runtime's quantiser for the whole process
that imports it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto

from routecast.datasets.errors import MissingPackage
from routecast.datasets.model import INLINE_LIMIT
from routecast.tuner.measure.inputs import load_arrays, save_arrays
from routecast.tuner.passes.base import PassContext, PassFailed

# What ModelOpt's ONNX part imports at once. Its own extra also wants CuPy and onnxruntime-gpu, and pins onnx.
_NEEDED = {
    "modelopt": "nvidia-modelopt",
    "onnx_graphsurgeon": "onnx-graphsurgeon",
    "lief": "lief",
    "onnxconverter_common": "onnxconverter-common",
    "onnxslim": "onnxslim",
    "pynvml": "nvidia-ml-py",
}


def modelopt_missing() -> str:
    """Why ModelOpt cannot be used here, empty when it can; imports nothing."""
    missing = next((package for module, package in _NEEDED.items() if find_spec(module) is None), "")
    return str(MissingPackage(missing, "quantisation by ModelOpt", "modelopt")) if missing else ""


def quantize_with_modelopt(
    model: ModelProto, context: PassContext, mode: str, excluded: Sequence[str], ops: Sequence[str] = ()
) -> ModelProto:
    """Quantises a model, calibrated on the greatest magnitudes seen on the input sets, on the CPU.

    Args:
        model: what to quantise; everything else in it stays in its precision.
        context: input sets and a folder.
        mode: ``int8`` or ``fp8``.
        excluded: names of operators to leave alone.
        ops: types of operators to quantise; empty for all that ModelOpt would.

    Raises:
        PassFailed: ModelOpt is not installed or failed; the message quotes its error.
    """
    if reason := modelopt_missing():
        raise PassFailed(reason)
    source, target, data = (context.folder / name for name in ("given.onnx", "quantized.onnx", "calibration.npz"))
    external = model.ByteSize() > INLINE_LIMIT
    onnx.save_model(model, source, save_as_external_data=external)
    constants = {tensor.name for tensor in model.graph.initializer}
    _join(context.calibration, [value.name for value in model.graph.input if value.name not in constants], data)
    command = [sys.executable, "-m", "modelopt.onnx.quantization", f"--onnx_path={source}", f"--output_path={target}"]
    command += [f"--quantize_mode={mode}", "--calibration_method=max", f"--calibration_data_path={data}"]
    command += ["--calibration_eps=cpu", "--high_precision_dtype=fp32", "--log_level=ERROR", "--simplify"]
    command += ["--use_external_data_format"] if external else []
    command += ["--op_types_to_quantize", *ops] if ops else []
    # It takes names as patterns that match a name's beginning.
    command += ["--nodes_to_exclude", *(f"{re.escape(name)}$" for name in excluded)] if excluded else []
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode or not target.exists():
        raise PassFailed(f"ModelOpt: {_last_error(done.stderr) or f'exit status {done.returncode}'}")
    return onnx.load(target)


def _last_error(text: str) -> str:
    """The last line that names an exception, or else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "Error:" in line), lines[-1] if lines else "")


def _join(calibration: Sequence[Path], names: Sequence[str], target: Path) -> None:
    """Writes all input sets as ModelOpt takes them: one array per input, the sets along the first axis."""
    sets = [load_arrays(path) for path in calibration]
    flat = [name for name in names if not sets[0][name].ndim]
    if flat:
        raise PassFailed(f"ModelOpt stacks input sets along the first axis, and the input {flat[0]} has none")
    save_arrays(target, {name: np.concatenate([each[name] for each in sets]) for name in names})
