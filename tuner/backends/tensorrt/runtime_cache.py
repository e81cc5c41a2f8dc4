"""RTX's runtime cache: what just-in-time compilation made of an engine, kept beside the engine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def context_with_cache(module: Any, engine: Any, path: Path) -> tuple[Any, Callable[[], None]]:
    """Makes an execution context that compiles with the cache in ``path``, where the bindings have one.

    Returns:
        The context, and what to call once all has been compiled: it writes the cache when there was none.
    """
    if not hasattr(module, "IRuntimeCache"):
        return engine.create_execution_context(), _nothing
    config = engine.create_runtime_config()
    config.dynamic_shapes_kernel_specialization_strategy = module.DynamicShapesKernelSpecializationStrategy.EAGER
    cache = config.create_runtime_cache()
    known = path.exists() and cache.deserialize(path.read_bytes())
    config.set_runtime_cache(cache)
    context = engine.create_execution_context(config)

    def keep() -> None:
        if not known:
            _write(path, bytes(memoryview(cache.serialize())))

    return context, keep


def _nothing() -> None:
    """For bindings without a cache."""


def _write(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all: several processes may load one engine."""
    descriptor, partial = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    Path(partial).replace(path)
