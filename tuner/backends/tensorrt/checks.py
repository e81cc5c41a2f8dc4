"""What ``routecast doctor`` finds out about TensorRT here."""

from __future__ import annotations

import re
from collections.abc import Iterator

from routecast.datasets.errors import MissingPackage
from routecast.tuner.backends.base import Check, one_line
from routecast.tuner.backends.tensorrt.api import TENSORRT_RTX, Bindings
from routecast.tuner.backends.tensorrt.channel import OPT_IN, REASON, opted_in
from routecast.tuner.backends.tensorrt.environment import gpu_facts, installed
from routecast.tuner.passes.modelopt import modelopt_missing

_FIRST_WITH_ROUTES = (11, 1)
_HOPPER = (9, 0)
_LAST_RTX_ON_HOPPER = "1.6.1.120"


def tensorrt_checks(bindings: Bindings) -> list[Check]:
    """Bindings, the packages that run engines, the GPU, and compiler knobs."""
    found = [_bindings(bindings), *_packages(bindings.backend), _gpu()]
    found += _version(bindings)
    found.append(Check("FP8 (ModelOpt)", True, modelopt_missing() or "offered where the GPU has it"))
    if bindings is TENSORRT_RTX:
        state = f"on ({OPT_IN}=1)" if opted_in() else f"off; {OPT_IN}=1 turns them on"
        found.append(Check("compiler knobs (experimental)", True, f"{state}: {REASON}"))
    return found


def _bindings(bindings: Bindings) -> Check:
    install = f"pip install 'routecast[{bindings.backend}]'"
    try:
        module = bindings.load()
    except MissingPackage as error:
        reason = error.__cause__
        detail = "not installed" if not bindings.installed() else one_line(reason or error)
        return Check(bindings.module, False, detail, install)
    missing = bindings.missing_names(module)
    if missing:
        return Check(bindings.module, False, f"{module.__version__} lacks {', '.join(missing)}", f"{install} --upgrade")
    return Check(bindings.module, True, str(module.__version__))


def _packages(extra: str) -> Iterator[Check]:
    for package, purpose in (
        ("pycuda", "context, memory, streams and events"),
        ("cuda-bindings", "graph capture"),
        ("nvidia-ml-py", "clocks and device numbers"),
    ):
        have = installed(package)
        fix = "" if have else f"pip install 'routecast[{extra}]'"
        yield Check(package, bool(have), have or f"not installed; needed for {purpose}", fix)


def _gpu() -> Check:
    facts = gpu_facts()
    if not facts.name:
        fix = "engines can be built here, not run: measure on a machine with an NVIDIA GPU and its driver"
        return Check("GPU", False, "none that NVML can see", fix)
    major, minor = facts.capability
    return Check("GPU", True, f"{facts.name}, compute capability {major}.{minor}, driver {facts.driver}")


def _version(bindings: Bindings) -> Iterator[Check]:
    have = bindings.installed()
    parts = tuple(int(part) for part in re.findall(r"\d+", have)[:2])
    if not parts:
        return
    if bindings is not TENSORRT_RTX and parts < _FIRST_WITH_ROUTES:
        yield Check(
            "build routes",
            False,
            f"TensorRT {have} has none; 11.1 is the first that has",
            "pip install -U tensorrt-cu13",
        )
    if bindings is TENSORRT_RTX and gpu_facts().capability == _HOPPER and parts >= (1, 7):
        packages = (f"tensorrt-rtx-cu13-{part}=={_LAST_RTX_ON_HOPPER}" for part in ("libs", "bindings"))
        fix = f"pip install {' '.join(packages)}"
        yield Check("GPU support", False, f"TensorRT-RTX {have} refuses compute capability 9.0; 1.6.1 runs there", fix)
