"""Local times from the trace that ONNX Runtime's profiler writes (Chrome's trace event format, JSON)."""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from routecast.datasets.measurement import LocalTime

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


def local_times(trace: str, repeats: int, nodes: Mapping[str, int]) -> list[LocalTime]:
    """Reads a trace.

    The time of an If, Loop or Scan is its own: that of the nodes in its bodies is taken off, since they are reported
    themselves. A node that runs several times in one inference counts with the sum.

    Args:
        trace: text of the trace.
        repeats: how many inferences to use, from the end.
        nodes: index into ``Graph.nodes`` by node name.

    Returns:
        One entry per executed node in order of execution: ms per inference, median over the inferences used.
    """
    events = json.loads(trace)
    runs = sorted((event["ts"], event["ts"] + event["dur"]) for event in events if _is_run(event))[-repeats:]
    kernels = sorted((_kernel(event) for event in events if _is_kernel(event)), key=lambda kernel: kernel.start)
    totals: dict[tuple[str, str], list[int]] = {}
    for index, (start, end) in enumerate(runs):
        inside = [kernel for kernel in kernels if start <= kernel.start <= end]
        _set_own_times(inside)
        for kernel in inside:
            totals.setdefault((kernel.name, kernel.op), [0] * len(runs))[index] += kernel.own
    matcher = NodeMatcher(nodes)
    return [
        LocalTime(name, op, statistics.median(micros) / 1e3, matcher.index(name))
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


class NodeMatcher:
    """Finds the node of the original graph that an executed node came from.

    ONNX Runtime's transformers name what they make after what they replace: ``fused /conv1/Conv``,
    ``/conv1/Conv_nchwc``, ``/conv1/Conv_output_0_QuantizeLinear``, ``/fc/MatMul/MatMulAddFusion``. So the rule is: the
    very name; else the longest original name that stands in it as a whole (with no letter or digit right before or after);
    else none. A fused node thus counts for one of the nodes it replaces.
    """

    def __init__(self, nodes: Mapping[str, int]) -> None:
        """Takes the index into ``Graph.nodes`` by node name."""
        self._nodes = {name: index for name, index in nodes.items() if name}
        # Names are filed under their first word, so that a look-up tries only the few that can match.
        self._by_word: dict[str, list[str]] = defaultdict(list)
        for name in sorted(self._nodes, key=len, reverse=True):
            self._by_word[_first_word(name)].append(name)

    def index(self, layer: str) -> int:
        """The node's index, -1 when no name matches."""
        if layer in self._nodes:
            return self._nodes[layer]
        words = dict.fromkeys(_WORD.findall(layer))
        names = [name for word in words for name in self._by_word.get(word, ()) if _stands_in(name, layer)]
        return self._nodes[max(names, key=len)] if names else -1


_WORD = re.compile(r"[A-Za-z0-9]+")


def _first_word(name: str) -> str:
    match = _WORD.search(name)
    return match.group() if match else ""


def _stands_in(name: str, layer: str) -> bool:
    start = layer.find(name)
    while start >= 0:
        before, after = layer[start - 1 : start], layer[start + len(name) : start + len(name) + 1]
        if not before.isalnum() and not after.isalnum():
            return True
        start = layer.find(name, start + 1)
    return False
