"""What the doctor and a measurement say on machines that cannot run TensorRT."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from routecast.datasets.errors import MissingPackage
from routecast.tuner.backends.base import Check, LoadFailed
from routecast.tuner.backends.tensorrt import checks, gpu
from routecast.tuner.backends.tensorrt.api import TENSORRT, TENSORRT_RTX, Bindings
from routecast.tuner.backends.tensorrt.environment import GpuFacts
from routecast.tuner.backends.tensorrt.space import fp8_refused, parse_capability

HOPPER = GpuFacts("NVIDIA H200", "580.1", "GPU-1", (9, 0))
ADA = GpuFacts("NVIDIA L4", "580.1", "GPU-2", (8, 9))


@pytest.fixture
def examine(monkeypatch: pytest.MonkeyPatch):
    """The findings on a machine with a GPU and a version of the bindings."""

    def found(bindings: Bindings, version: str, facts: GpuFacts) -> dict[str, Check]:
        monkeypatch.setattr(Bindings, "installed", lambda self: version)
        monkeypatch.setattr(checks, "gpu_facts", lambda: facts)
        return {check.what: check for check in checks.tensorrt_checks(bindings)}

    return found


def test_a_gpu_that_rtx_refuses_is_told_the_version_that_runs(examine):
    check = examine(TENSORRT_RTX, "1.7.1.3", HOPPER)["GPU support"]
    assert not check.ok
    assert "1.7.1.3 refuses compute capability 9.0" in check.detail
    assert check.fix == ("pip install tensorrt-rtx-cu13-libs==1.6.1.120 tensorrt-rtx-cu13-bindings==1.6.1.120")


@pytest.mark.parametrize(("version", "facts"), [("1.6.1.120", HOPPER), ("1.7.1.3", ADA), ("1.7.1.3", GpuFacts())])
def test_a_gpu_that_runs_is_not_warned_of(examine, version, facts):
    assert "GPU support" not in examine(TENSORRT_RTX, version, facts)


def test_a_tensorrt_without_build_routes_is_told_the_first_version_with_them(examine):
    assert "11.1 is the first" in examine(TENSORRT, "10.9.0", ADA)["build routes"].detail
    assert "build routes" not in examine(TENSORRT, "11.1.0", ADA)
    assert "GPU support" not in examine(TENSORRT, "11.1.0", HOPPER)


def test_a_missing_gpu_says_what_still_works(examine):
    check = examine(TENSORRT_RTX, "1.6.1.120", GpuFacts())["GPU"]
    assert not check.ok
    assert "engines can be built here, not run" in check.fix


def test_fp8_needs_ada_or_later():
    assert fp8_refused((0, 0)) == fp8_refused((8, 9)) == fp8_refused((9, 0)) == fp8_refused((12, 0)) == ""
    assert "8.9 or later, the GPU has 8.6" in fp8_refused((8, 6))
    assert parse_capability("SM89") == (8, 9)
    assert parse_capability("SM120") == (12, 0)


def test_without_a_gpu_loading_says_so_before_it_asks_for_packages(monkeypatch):
    monkeypatch.setattr(gpu, "installed", lambda package: "13.0")
    monkeypatch.setattr(gpu, "gpu_facts", GpuFacts)
    with pytest.raises(LoadFailed, match="no NVIDIA GPU here"):
        gpu.require_gpu()
    monkeypatch.setattr(gpu, "gpu_facts", lambda: ADA)
    gpu.require_gpu()


def test_pycuda_that_finds_no_driver_is_not_called_missing(monkeypatch, tmp_path: Path):
    for name in [name for name in sys.modules if name.split(".")[0] == "pycuda"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "pycuda"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "driver.py").write_text("raise ImportError('libcuda.so.1: cannot open shared object file')")
    with pytest.raises(MissingPackage, match="pycuda"):
        gpu._driver()
    monkeypatch.setattr(gpu, "find_spec", lambda name: object())
    with pytest.raises(LoadFailed, match="PyCUDA does not load: libcuda.so.1"):
        gpu._driver()
