"""A tuned route as files to deploy: the ONNX file and a loader that needs nothing but ONNX Runtime."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnxruntime as ort

from routecast.datasets.route import Route
from routecast.tuner.backends.onnxruntime.sessions import CONFIG_KEYS, disabled_optimizers, session_options

_ATTRIBUTES = (
    "graph_optimization_level",
    "execution_mode",
    "intra_op_num_threads",
    "inter_op_num_threads",
    "enable_mem_pattern",
    "enable_cpu_mem_arena",
    "enable_mem_reuse",
)

_LOADER = '''"""Loads the tuned model as routecast measured it; needs onnxruntime {version} only."""

from pathlib import Path

import onnxruntime as ort


def load() -> ort.InferenceSession:
    """A session with the options of the route: {route}."""
    options = ort.SessionOptions()
{settings}
    return ort.InferenceSession(
        str(Path(__file__).parent / "model.onnx"),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers={disabled},
    )
'''


def export(artifact: Path, external: Iterable[Path], route: Route, folder: Path) -> Path:
    """Writes ``model.onnx`` (with its external weights) and ``load_model.py``; returns the former."""
    target = folder / "model.onnx"
    shutil.copyfile(artifact, target)
    for file in external:
        beside = folder / file.relative_to(artifact.parent)
        beside.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, beside)
    settings = "\n".join(f"    {line}" for line in _settings(route)) or "    # every option stays at its default"
    loader = _LOADER.format(
        version=ort.__version__, route=route.label(), settings=settings, disabled=disabled_optimizers(route)
    )
    (folder / "load_model.py").write_text(loader)
    return target


def _settings(route: Route) -> Iterator[str]:
    """The statements that set what differs from ONNX Runtime's defaults."""
    options, default = session_options(route), ort.SessionOptions()
    for name in _ATTRIBUTES:
        value = getattr(options, name)
        if value != getattr(default, name):
            yield f"options.{name} = {_expression(value)}"
    for key in CONFIG_KEYS:
        try:
            value = options.get_session_config_entry(key)
        except RuntimeError:  # not set
            continue
        yield f"options.add_session_config_entry({key!r}, {value!r})"


def _expression(value: object) -> str:
    """Python source of an option's value; enumerations are named through ``ort``."""
    if isinstance(value, ort.GraphOptimizationLevel | ort.ExecutionMode):
        return f"ort.{type(value).__name__}.{value.name}"
    return repr(value)
