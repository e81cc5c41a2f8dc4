"""The processor, memory and package versions of this machine."""

from __future__ import annotations

import hashlib
import platform
import re
import time
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from routecast.datasets.environment import Environment
from routecast.tuner.backends.base import Check, one_line
from routecast.tuner.patterns import cores

_PACKAGES = ("numpy", "onnx", "onnxruntime", "onnxscript", "onnxslim")
_FLAGS = {
    "avx2": "avx2", "avx512": "avx512f", "vnni": "avx512_vnni", "avx_vnni": "avx_vnni",
    "amx_int8": "amx_int8", "bf16": "avx512_bf16",
    "neon": "asimd", "dotprod": "asimddp", "i8mm": "i8mm", "sve": "sve",
}  # fmt: skip
_SESSION = "a session on this processor"
_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def cpu_environment(backend: str) -> Environment:
    """Where measurements made now, in this process, are made."""
    versions = {name: found for name in _PACKAGES if (found := _version(name))}
    return Environment(
        backend=backend,
        backend_version=versions.get("onnxruntime", ""),
        device=device_name(),
        host=_host(),
        system=f"{platform.system()} {platform.release()}",
        versions=versions,
        numbers=dict(_numbers()),
    )


def device_name() -> str:
    """The processor's marketing name, its architecture where the system does not tell."""
    match = re.search(r"^(?:model name|Hardware)\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return match.group(1).strip() if match else platform.processor() or platform.machine()


@cache
def _numbers() -> dict[str, float]:
    import psutil

    frequency = psutil.cpu_freq()
    known = {
        "cores": float(psutil.cpu_count(logical=False) or cores()),
        "threads": float(cores()),
        "memory_gb": psutil.virtual_memory().total / 2**30,
        "bandwidth_gbs": _bandwidth_gbs(),
        "peak_gflops": _peak_gflops(),
        **_cache_sizes(),
    }
    if frequency is not None and (clock := frequency.max or frequency.current):
        known["clock_mhz"] = float(clock)
    flags = set(re.findall(r"\w+", _flags_line()))
    known.update({name: float(flag in flags) for name, flag in _FLAGS.items()})
    return {name: round(value, 3) for name, value in known.items()}


def _cache_sizes() -> dict[str, float]:
    sizes: dict[str, float] = {}
    for index in sorted(_CACHES.glob("index*")) if _CACHES.exists() else ():
        level, kind, size = (_read(index / name) for name in ("level", "type", "size"))
        match = re.fullmatch(r"(\d+)([KMG]?)", size)
        if match and kind != "Instruction" and level in ("2", "3"):
            sizes[f"l{level}_mb"] = int(match.group(1)) * _UNITS.get(match.group(2), 1) / 2**20
    return sizes


def _bandwidth_gbs() -> float:
    """Bytes read and written per second by copying 64 MB, best of a few, in GB/s."""
    source = np.ones(2**23)
    target = np.empty_like(source)
    return 2 * source.nbytes / _best_seconds(lambda: np.copyto(target, source)) / 1e9


def _peak_gflops() -> float:
    """Floating point operations per second of a float32 matrix product, best of a few, in GFLOP/s."""
    size = 512
    left, right = np.ones((size, size), np.float32), np.ones((size, size), np.float32)
    return float(2 * size**3 / _best_seconds(lambda: left @ right) / 1e9)


def _best_seconds(work: Callable[[], object], budget: float = 0.05) -> float:
    times: list[float] = []
    work()
    while len(times) < 3 or sum(times) < budget:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _flags_line() -> str:
    match = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return match.group(1) if match else ""


@cache
def _cpuinfo() -> str:
    return _read(_CPUINFO)


def _host() -> str:
    identity = _read(Path("/etc/machine-id")) or platform.node()
    return hashlib.sha256(f"routecast:{identity}".encode()).hexdigest()[:12]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def cpu_checks() -> list[Check]:
    """What ``routecast doctor`` finds out about ONNX Runtime here."""
    found = [_package_check(name) for name in _PACKAGES]
    found.append(_session_check())
    return found


def _package_check(name: str) -> Check:
    installed = _version(name)
    if not installed:
        return Check(name, False, "not installed", f"pip install {name}")
    return Check(name, True, installed)


def _session_check() -> Check:
    import onnxruntime as ort
    from onnx import TensorProto, helper

    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "check", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    try:
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (result,) = session.run(None, {"x": np.ones(1, np.float32)})
    except Exception as error:  # whatever stops it is the finding
        return Check(_SESSION, False, one_line(error), "pip install --force-reinstall onnxruntime")
    if result[0] != -1:
        return Check(_SESSION, False, f"-1 came out as {result[0]}", "report this to ONNX Runtime")
    return Check(_SESSION, True, device_name())
