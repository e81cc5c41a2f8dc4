"""What NVML tells of a GPU, and that its absence is no failure."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from routecast.tuner.backends.tensorrt.backend import TensorRt, TensorRtRtx
from routecast.tuner.backends.tensorrt.environment import device_state, gpu_facts, read_state


class NotSupportedError(Exception):
    """As NVML raises it."""


def unsupported(handle):
    raise NotSupportedError


def test_the_state_holds_what_the_device_tells_in_the_units_of_its_names():
    nvml = SimpleNamespace(
        NVMLError=NotSupportedError,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_CLOCK_VIDEO=3,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetClockInfo=lambda handle, kind: {1: 1980, 2: 3201, 3: 1545}[kind],
        nvmlDeviceGetCurrPcieLinkGeneration=lambda handle: 5,
        nvmlDeviceGetTemperature=lambda handle, sensor: 41,
        nvmlDeviceGetPowerUsage=lambda handle: 123_456,  # milliwatts
        nvmlDeviceGetCurrentClocksThrottleReasons=unsupported,
    )
    assert read_state(nvml, "handle") == {
        "sm_clock_mhz": 1980.0, "memory_clock_mhz": 3201.0, "video_clock_mhz": 1545.0, "pcie_generation": 5.0,
        "temperature_c": 41.0, "power_w": pytest.approx(123.456),
    }  # fmt: skip


def test_without_nvml_there_is_no_state(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert device_state() == {}


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_facts().name, reason="no NVIDIA GPU here")
def test_a_gpu_tells_its_state():
    state = device_state()
    assert set(state) >= {"sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w", "throttle_reasons"}
    assert 100 < state["sm_clock_mhz"] <= gpu_facts().numbers["clock_mhz"]
    assert 10 < state["temperature_c"] < 100


def test_compiler_knobs_act_again_at_load_on_rtx_only():
    assert TensorRtRtx.compiles_at_load == {"compiler"}
    assert not TensorRt.compiles_at_load
