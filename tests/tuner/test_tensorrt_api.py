"""Every name that the adapter uses exists in the bindings, also in those that cannot be imported here."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from routecast.tuner.backends.tensorrt.api import TENSORRT, TENSORRT_RTX


def test_rtx_has_every_name():
    module = pytest.importorskip("tensorrt_rtx_bindings", reason="the TensorRT-RTX wheels are not installed")
    assert TENSORRT_RTX.missing_names(module) == []


def test_missing_names_are_found():
    class Empty:
        pass

    missing = TENSORRT_RTX.missing_names(Empty)
    assert "Builder.create_network" in missing
    assert "INetworkDefinition.num_layers" in missing


def bindings_library() -> bytes:
    """The extension module of enterprise TensorRT's bindings, as bytes."""
    for package in TENSORRT.packages:
        try:
            files = distribution(package).files or ()
        except PackageNotFoundError:
            continue
        for file in files:
            if file.name.startswith("tensorrt") and file.suffix == ".so":
                return Path(str(file.locate())).read_bytes()
    pytest.skip("TensorRT's bindings wheel (tensorrt-cu13-bindings) is not installed")


def test_enterprise_tensorrt_holds_every_name():
    library = bindings_library()
    missing = [
        f"{owner}.{name}"
        for owner, names in TENSORRT.used_names().items()
        for name in (owner, *names)
        # Names stand in the library as C strings; linkers let one that ends another share its bytes.
        if name.encode() + b"\0" not in library
    ]
    assert missing == []


def test_names_of_both_are_joined():
    used = TENSORRT.used_names()["IBuilderConfig"]
    assert {"build_route", "all_build_routes", "tiling_optimization_level"} <= set(used)
    assert "num_compute_capabilities" not in used
