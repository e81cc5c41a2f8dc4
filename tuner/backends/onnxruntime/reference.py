"""The unmodified model's own outputs, which every route of every backend is judged by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnxruntime as ort

from routecast.datasets.errors import RoutecastError
from routecast.tuner.backends.base import Array, one_line


def run_unmodified(path: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """One inference by ONNX Runtime on the CPU without graph optimisation.

    Raises:
        RoutecastError: ONNX Runtime cannot run the model.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))
    except Exception as error:  # ONNX Runtime's errors share no base class but Exception
        raise RoutecastError(one_line(error)) from error
