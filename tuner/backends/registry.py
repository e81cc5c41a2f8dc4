"""The backends by name, imported only when asked for."""

from __future__ import annotations

from importlib import import_module

from routecast.datasets.errors import UsageError
from routecast.tuner.backends.base import Backend

# Module and class by name. A backend's module imports what it drives, so only the one asked for is imported.
_BACKENDS = {
    "onnxruntime": ("routecast.tuner.backends.onnxruntime.backend", "OnnxRuntimeBackend"),
    "tensorrt": ("routecast.tuner.backends.tensorrt.backend", "TensorRt"),
    "tensorrt-rtx": ("routecast.tuner.backends.tensorrt.backend", "TensorRtRtx"),
}


def backend_names() -> tuple[str, ...]:
    """Names of all backends, whether or not they work on this machine."""
    return tuple(sorted(_BACKENDS))


def get_backend(name: str) -> Backend:
    """A backend by name, or one from elsewhere as ``module:Class``.

    Raises:
        UsageError: there is no such backend.
    """
    if ":" in name:
        module, attribute = name.split(":", 1)
    elif name in _BACKENDS:
        module, attribute = _BACKENDS[name]
    else:
        raise UsageError(f"unknown backend {name!r}: choose one of {', '.join(backend_names())}, or module:Class")
    backend: Backend = getattr(import_module(module), attribute)()
    return backend
