"""The GPU's numbers from NVML and CUDA, and the versions of what changes a build."""

from __future__ import annotations

import contextlib
import hashlib
import platform
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from routecast.datasets.environment import Environment

_PACKAGES = ("onnx", "onnxruntime", "onnxscript", "onnxslim", "pycuda", "cuda-bindings")
# FP32 lanes of one multiprocessor by compute capability (CUDA C++ Programming Guide, "Throughput of native
# arithmetic instructions"); those not listed have 128.
_LANES = {(7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64, (10, 0): 128, (9, 0): 128}


@dataclass(frozen=True)
class GpuFacts:
    """What there is to know about one GPU; empty when there is none.

    Attributes:
        name: marketing name.
        driver: version of the driver.
        uuid: identity of the board.
        capability: compute capability.
        numbers: see ``Environment.numbers``.
    """

    name: str = ""
    driver: str = ""
    uuid: str = ""
    capability: tuple[int, int] = (0, 0)
    numbers: dict[str, float] = field(default_factory=dict)


@cache
def gpu_facts(index: int = 0) -> GpuFacts:
    """Asks NVML; nothing here makes a CUDA context."""
    try:
        import pynvml
    except ImportError:
        return GpuFacts()
    try:
        pynvml.nvmlInit()
        handle = _handle(pynvml, index)
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        name, uuid, driver = (
            _text(value)
            for value in (
                pynvml.nvmlDeviceGetName(handle),
                pynvml.nvmlDeviceGetUUID(handle),
                pynvml.nvmlSystemGetDriverVersion(),
            )
        )
        return GpuFacts(name, driver, uuid, (major, minor), _numbers(pynvml, handle, (major, minor), index))
    except pynvml.NVMLError:
        return GpuFacts()


def device_state(index: int = 0) -> dict[str, float]:
    """Clocks, PCIe link, temperature, power and throttle reasons of a GPU right now, as far as NVML tells them.

    ``throttle_reasons`` is NVML's bit mask (``nvmlClocksEventReasons``), 0 when nothing holds the clocks back.
    """
    try:
        import pynvml
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
        return read_state(pynvml, _handle(pynvml, index))
    except pynvml.NVMLError:
        return {}


def read_state(nvml: Any, handle: Any) -> dict[str, float]:
    """What ``device_state`` returns, of one NVML device; what the device does not support is left out."""
    asked = {
        "sm_clock_mhz": ("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM", 1.0),
        "memory_clock_mhz": ("nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM", 1.0),
        "video_clock_mhz": ("nvmlDeviceGetClockInfo", "NVML_CLOCK_VIDEO", 1.0),
        "pcie_generation": ("nvmlDeviceGetCurrPcieLinkGeneration", "", 1.0),
        "temperature_c": ("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU", 1.0),
        "power_w": ("nvmlDeviceGetPowerUsage", "", 1e-3),
        "throttle_reasons": ("nvmlDeviceGetCurrentClocksThrottleReasons", "", 1.0),
    }
    state = {}
    for name, (function, kind, scale) in asked.items():
        with contextlib.suppress(AttributeError, nvml.NVMLError):
            state[name] = getattr(nvml, function)(handle, *([getattr(nvml, kind)] if kind else [])) * scale
    return state


def _handle(nvml: Any, index: int) -> Any:
    """NVML's device for CUDA's ``index``: NVML counts every GPU, CUDA the visible ones in an order of its own."""
    try:
        import pycuda.driver as cuda
    except ImportError:
        return nvml.nvmlDeviceGetHandleByIndex(index)
    try:
        cuda.init()
        bus = cuda.Device(index).pci_bus_id()
    except cuda.Error:
        return nvml.nvmlDeviceGetHandleByIndex(index)
    return nvml.nvmlDeviceGetHandleByPciBusId(bus.encode())


def _numbers(nvml: Any, handle: Any, capability: tuple[int, int], index: int) -> dict[str, float]:
    clock = float(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))
    memory_clock = float(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM))
    numbers = {
        "clock_mhz": clock,
        "memory_clock_mhz": memory_clock,
        "memory_gb": nvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30,
        "compute_capability": capability[0] + capability[1] / 10,
        **_power(nvml, handle),
    }
    bus = _attribute(nvml, "nvmlDeviceGetMemoryBusWidth", handle)
    if bus:
        numbers["bandwidth_gbs"] = memory_clock * 1e6 * 2 * bus / 8 / 1e9  # double data rate
    multiprocessors, l2 = _cuda_attributes(index)
    if not multiprocessors:
        cores = _attribute(nvml, "nvmlDeviceGetNumGpuCores", handle)
        multiprocessors = cores / _LANES.get(capability, 128)
    if multiprocessors:
        numbers["streaming_multiprocessors"] = multiprocessors
        numbers["peak_gflops"] = multiprocessors * _LANES.get(capability, 128) * 2 * clock / 1e3
    if l2:
        numbers["l2_mb"] = l2 / 2**20
    return {name: round(value, 3) for name, value in numbers.items()}


def _cuda_attributes(index: int) -> tuple[float, float]:
    """Number of multiprocessors and bytes of L2 cache, zeros when CUDA cannot be asked."""
    try:
        import pycuda.driver as cuda
    except ImportError:
        return 0.0, 0.0
    try:
        cuda.init()
        device, names = cuda.Device(index), cuda.device_attribute
        return float(device.get_attribute(names.MULTIPROCESSOR_COUNT)), float(device.get_attribute(names.L2_CACHE_SIZE))
    except cuda.Error:
        return 0.0, 0.0


def _attribute(nvml: Any, function: str, handle: Any) -> float:
    try:
        return float(getattr(nvml, function)(handle))
    except (AttributeError, nvml.NVMLError):
        return 0.0


def _power(nvml: Any, handle: Any) -> dict[str, float]:
    watts = _attribute(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle) / 1e3
    return {"power_limit_w": watts} if watts else {}


def gpu_environment(backend: str, backend_version: str, tuner_version: str) -> Environment:
    """Where measurements made now, in this process, are made; without a GPU the device is empty."""
    facts = gpu_facts()
    versions = {name: found for name in _PACKAGES if (found := installed(name))}
    return Environment(
        backend=backend,
        backend_version=backend_version,
        device=facts.name,
        tuner_version=tuner_version,
        driver=facts.driver,
        host=_host(facts.uuid),
        system=f"{platform.system()} {platform.release()}",
        versions=versions,
        numbers=facts.numbers,
    )


def installed(package: str) -> str:
    """Version of an installed distribution, empty when there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _host(uuid: str) -> str:
    try:
        machine = Path("/etc/machine-id").read_text(encoding="utf-8").strip()
    except OSError:
        machine = platform.node()
    return hashlib.sha256(f"routecast:{machine}:{uuid}".encode()).hexdigest()[:12]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
