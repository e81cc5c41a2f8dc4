"""ONNX Runtime sessions: from a route to session options, and from a session to an executable."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from routecast.datasets.measurement import LocalTime
from routecast.datasets.model import INLINE_LIMIT
from routecast.datasets.route import Route
from routecast.tuner.backends.base import Array, Executable, LoadFailed, one_line
from routecast.tuner.backends.onnxruntime.optimizers import DISABLED_NAMES
from routecast.tuner.backends.onnxruntime.origins import Origins, computed_tensors
from routecast.tuner.backends.onnxruntime.profile import local_times

_ERRORS_ONLY = 3
_OPTIMIZED = "optimized.onnx"

_LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "layout": "ORT_ENABLE_LAYOUT",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "disabled": "ORT_DISABLE_ALL",
}

# ONNX Runtime's configuration entry by knob, and its text for each value.
_ENTRIES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "session.prepacking": ("session.disable_prepacking", {"on": "0", "off": "1"}),
    "session.dynamic_block_base": ("session.dynamic_block_base", {}),
    "session.denormal_as_zero": ("session.set_denormal_as_zero", {"on": "1", "off": "0"}),
    "session.gelu_approximation": ("optimization.enable_gelu_approximation", {"on": "1", "off": "0"}),
    "session.gemm_bfloat16": ("mlas.enable_gemm_fastmath_arm64_bfloat16", {"on": "1", "off": "0"}),
    "session.qdq_cleanup": ("session.enable_quant_qdq_cleanup", {"on": "1", "off": "0"}),
}

_SPINNING: Mapping[str, Mapping[str, str]] = {
    "on": {},
    "within_run": {"session.force_spinning_stop": "1"},
    "off": {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"},
}

CONFIG_KEYS: tuple[str, ...] = (
    *(entry for entry, _ in _ENTRIES.values()),
    *(entry for entries in _SPINNING.values() for entry in entries),
)
"""Every configuration entry that a route may set."""

_SWITCHES = {
    "session.memory_pattern": "enable_mem_pattern",
    "session.cpu_arena": "enable_cpu_mem_arena",
    "session.memory_reuse": "enable_mem_reuse",
}

_COUNTS = {
    "session.intra_op_threads": "intra_op_num_threads",
    "session.inter_op_threads": "inter_op_num_threads",
}


def session_options(route: Route) -> ort.SessionOptions:
    """ONNX Runtime's session options for a route; what it does not set stays at ONNX Runtime's default."""
    options = ort.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    for knob, value in route.items():
        if knob == "session.graph_optimization_level":
            options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVELS[value])
        elif knob == "session.execution_mode":
            options.execution_mode = getattr(ort.ExecutionMode, f"ORT_{value.upper()}")
        elif knob in _SWITCHES:
            setattr(options, _SWITCHES[knob], value == "on")
        elif knob in _COUNTS:
            setattr(options, _COUNTS[knob], int(value))
        elif knob == "session.allow_spinning":
            for entry, text in _SPINNING[value].items():
                options.add_session_config_entry(entry, text)
        elif knob in _ENTRIES:
            entry, texts = _ENTRIES[knob]
            options.add_session_config_entry(entry, texts.get(value, value))
    return options


def disabled_optimizers(route: Route) -> list[str]:
    """ONNX Runtime's names of the optimisers that a route switches off."""
    return [
        name
        for knob, value in route.items()
        if knob.startswith("optimizer.") and value == "off"
        for name in DISABLED_NAMES[knob]
    ]


def _structure(path: Path) -> onnx.ModelProto:
    return onnx.load(path, load_external_data=False)


class OnnxRuntimeExecutable(Executable):
    """A session, and the inputs it is timed with."""

    def __init__(self, path: Path, route: Route, model: Path | None = None) -> None:
        """Loads a file.

        Args:
            path: what was built.
            route: the route, whose load-time knobs act here.
            model: the original model, when the session is to be profiled.

        Raises:
            LoadFailed: ONNX Runtime refused it; the message is its own first line.
        """
        options = session_options(route)
        self._session: ort.InferenceSession | None = None
        self._profiles: tempfile.TemporaryDirectory[str] | None = None
        self._model = model
        if model is not None:
            self._profiles = tempfile.TemporaryDirectory(prefix="routecast-profile-")
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(self._profiles.name) / "ort")
            if path.stat().st_size < INLINE_LIMIT:  # tells which tensors each executed node computes
                options.optimized_model_filepath = str(Path(self._profiles.name) / _OPTIMIZED)
        try:
            self._session = ort.InferenceSession(
                str(path),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=disabled_optimizers(route),
            )
        except Exception as error:  # ONNX Runtime's errors share no base class but Exception
            self.close()
            raise LoadFailed(one_line(error)) from error
        self._inputs = {value.name for value in self._session.get_inputs()}
        self._outputs = [value.name for value in self._session.get_outputs()]
        self._infer: Callable[[], object] | None = None

    @property
    def _open(self) -> ort.InferenceSession:
        if self._session is None:
            raise LoadFailed("this session was closed; load the artifact again")
        return self._session

    def _feeds(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        # A graph pass may have found an input to be unused and dropped it.
        return {name: np.ascontiguousarray(value) for name, value in inputs.items() if name in self._inputs}

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One inference: outputs by name."""
        try:
            return dict(zip(self._outputs, self._open.run(self._outputs, self._feeds(inputs)), strict=True))
        except LoadFailed:
            raise
        except Exception as error:
            raise LoadFailed(one_line(error)) from error

    def prepare(self, inputs: Mapping[str, Array]) -> None:
        """Binds inputs and outputs that are tensors of numbers: it halves what a call from Python costs."""
        session, feeds = self._open, self._feeds(inputs)
        values = (*session.get_inputs(), *session.get_outputs())
        if any(not value.type.startswith("tensor(") or value.type == "tensor(string)" for value in values):
            self._infer = partial(session.run, self._outputs, feeds)
            return
        binding = session.io_binding()
        try:
            for name, value in feeds.items():
                binding.bind_cpu_input(name, value)
            for name in self._outputs:
                binding.bind_output(name, "cpu")
        except Exception as error:
            raise LoadFailed(one_line(error)) from error
        self._infer = partial(session.run_with_iobinding, binding)

    def time(self, repeats: int) -> float:
        """Median latency in ms over ``repeats`` inferences."""
        infer, clock = self._infer, time.perf_counter_ns
        if infer is None:
            raise LoadFailed("there is nothing to time: call prepare with inputs first")
        times = []
        try:
            for _ in range(repeats):
                start = clock()
                infer()
                times.append(clock() - start)
        except Exception as error:
            raise LoadFailed(one_line(error)) from error
        return statistics.median(times) / 1e6

    def profile(self, repeats: int, nodes: Mapping[str, int] | None = None) -> list[LocalTime]:
        """Local time per node from ONNX Runtime's own profiler; it can be taken once per executable."""
        if self._profiles is None or self._model is None:
            raise LoadFailed("a session is profiled once, and only when it was loaded with profiling=True")
        self.time(1 + repeats)
        text = Path(self._open.end_profiling()).read_text(encoding="utf-8")
        optimized = Path(self._profiles.name) / _OPTIMIZED
        executed = computed_tensors(_structure(optimized)) if optimized.exists() else {}
        self._profiles.cleanup()
        self._profiles = None
        return local_times(text, repeats, Origins(_structure(self._model), nodes or {}, executed))

    def close(self) -> None:
        """Frees the session and what its profiler wrote."""
        self._session = None
        self._infer = None
        if self._profiles is not None:
            self._profiles.cleanup()
            self._profiles = None
