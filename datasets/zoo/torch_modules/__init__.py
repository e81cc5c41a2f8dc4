"""Parametric architectures in plain torch, exported with seeded random weights.

Nothing here imports torch until a network is made: the catalogue is data, and names its builders.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path

from routecast.datasets.zoo.entry import Network
from routecast.datasets.zoo.torch_modules.catalogue import SPECS, Spec


def networks() -> tuple[Network, ...]:
    """Returns the whole catalogue where torch and its exporters are installed, else nothing."""
    needed = ("torch", "onnx", "onnxscript")
    if any(importlib.util.find_spec(package) is None for package in needed):
        return ()
    return tuple(
        Network(
            name=spec.name,
            family=spec.family,
            source="torch",
            make=partial(_make, spec),
            ranges={name: each.range for name, each in spec.inputs.items()},
            held_out=spec.held_out,
        )
        for spec in SPECS
    )


def _make(spec: Spec, folder: Path) -> Path:
    """Exports the network; torch takes seconds to load, so only here."""
    from routecast.datasets.zoo.torch_modules.export import export

    return export(spec, folder)
