"""The graph passes by name, in the order in which they are applied, imported only when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from routecast.tuner.passes.base import GraphPass

# Structure before precision: quantising first would hide the patterns that the others look for.
_PASSES = {
    "onnxslim": ("routecast.tuner.passes.onnxslim", "OnnxSlim"),
    "onnxscript": ("routecast.tuner.passes.onnxscript", "OnnxScript"),
    "transformers": ("routecast.tuner.passes.transformers", "TransformerFusion"),
    "precision": ("routecast.tuner.passes.precision", "Precision"),
}


def pass_names() -> tuple[str, ...]:
    """Names of all passes, in the order of application."""
    return tuple(_PASSES)


def get_passes(names: Sequence[str]) -> list[GraphPass]:
    """The passes of these names, in the order of application."""
    wanted = [_PASSES[name] for name in _PASSES if name in names]
    return [getattr(import_module(module), attribute)() for module, attribute in wanted]
