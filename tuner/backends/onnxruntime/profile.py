"""Local times from the trace that ONNX Runtime's profiler writes (Chrome's trace event format, JSON)."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from routecast.datasets.measurement import LocalTime
from routecast.tuner.backends.onnxruntime.origins import Origins

_KERNEL_SUFFIX = "_kernel_time"
_BODY_OPS = frozenset({"If", "Loop", "Scan"})


@dataclass
class _Kernel:
    name: str
    op: str
    start: int
    duration: int
    own: int = 0

    @property
    def end(self) -> int:
        return self.start + self.duration


def local_times(trace: str, repeats: int, origins: Origins) -> list[LocalTime]:
    """Reads a trace.

    The time of an If, Loop or Scan is its own: that of the nodes in its bodies is taken off, since they are
    reported themselves. A node that runs several times in one inference counts with the sum.

    Args:
        trace: text of the trace.
        repeats: how many inferences to use, from the end.
        origins: finds the node of the original graph that an executed node came from.

    Returns:
        One entry per executed node in order of execution: ms per inference, median over the inferences used.
    """
    events = json.loads(trace)
    runs = sorted((event["ts"], event["ts"] + event["dur"]) for event in events if _is_run(event))[-repeats:]
    kernels = sorted(map(_kernel, filter(_is_kernel, events)), key=lambda kernel: kernel.start)
    totals: dict[tuple[str, str], list[int]] = {}
    for index, (start, end) in enumerate(runs):
        inside = [kernel for kernel in kernels if start <= kernel.start <= end]
        _set_own_times(inside)
        for kernel in inside:
            totals.setdefault((kernel.name, kernel.op), [0] * len(runs))[index] += kernel.own
    return [
        LocalTime(name, op, statistics.median(micros) / 1e3, origins.node(name, op))
        for (name, op), micros in totals.items()
    ]


def _is_run(event: Mapping[str, Any]) -> bool:
    return event.get("cat") == "Session" and event.get("name") == "model_run"


def _is_kernel(event: Mapping[str, Any]) -> bool:
    return event.get("cat") == "Node" and str(event.get("name", "")).endswith(_KERNEL_SUFFIX)


def _kernel(event: Mapping[str, Any]) -> _Kernel:
    name = event["name"].removesuffix(_KERNEL_SUFFIX)
    return _Kernel(name, event.get("args", {}).get("op_name", ""), event["ts"], event["dur"])


def _set_own_times(kernels: list[_Kernel]) -> None:
    """Takes the time of nodes in bodies off the innermost If, Loop or Scan that holds them."""
    holders: list[_Kernel] = []
    for kernel in sorted(kernels, key=lambda kernel: (kernel.start, -kernel.duration)):
        kernel.own = kernel.duration
        while holders and kernel.end > holders[-1].end:
            holders.pop()
        if holders:
            holders[-1].own = max(0, holders[-1].own - kernel.duration)
        if kernel.op in _BODY_OPS:
            holders.append(kernel)
