"""Local times from TensorRT's profiler, and which operators of the model a layer stands for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from routecast.datasets.measurement import LocalTime

Run = list[tuple[str, float]]

_ONNX_LAYER = re.compile(r"\[ONNX Layer: ([^\]]+)\]")
_KERNEL = re.compile(r"^__my[a-z]*_([A-Za-z]+)_")


def make_profiler(module: Any, context: Any) -> Any:
    """Attaches a profiler to a context; the last list in its ``runs`` receives (layer, ms) pairs."""

    class Profiler(module.IProfiler):  # type: ignore[misc]
        """Keeps what it is told."""

        def __init__(self) -> None:
            module.IProfiler.__init__(self)
            self.runs: list[Run] = [[]]

        def report_layer_time(self, layer: str, ms: float) -> None:
            """Takes the time of one layer."""
            self.runs[-1].append((layer, ms))

    profiler = Profiler()
    context.profiler = profiler
    return profiler


@dataclass(frozen=True)
class LayerNames:
    """What the engine inspector says of layers.

    Attributes:
        kinds: kind of layer by name.
        nodes: index of an operator of the model by name of layer: the last one that the layer was made of.
    """

    kinds: Mapping[str, str]
    nodes: Mapping[str, int]

    @classmethod
    def of(cls, module: Any, engine: Any, nodes: Mapping[str, int]) -> LayerNames:
        """Asks the inspector of an engine built with detailed profiling."""
        text = engine.create_engine_inspector().get_engine_information(module.LayerInformationFormat.JSON)
        return cls.parse(text, nodes)

    @classmethod
    def parse(cls, text: str, nodes: Mapping[str, int]) -> LayerNames:
        """Reads the inspector's JSON; layers given by their bare names have nothing more to tell."""
        try:
            layers = json.loads(text).get("Layers", [])
        except ValueError:
            layers = []
        kinds, found = {}, {}
        for layer in layers:
            if not isinstance(layer, dict) or "Name" not in layer:
                continue
            name = str(layer["Name"])
            kinds[name] = str(layer.get("LayerType", ""))
            sources = [nodes[source] for source in _sources(layer) if source in nodes]
            if sources:
                found[name] = sources[-1]
        return cls(kinds, found)

    def local(self, name: str, ms: float) -> LocalTime:
        """One layer's time."""
        return LocalTime(name, self._kind(name), ms, self.nodes.get(name, -1))

    def _kind(self, name: str) -> str:
        kernel = _KERNEL.match(name)
        return kernel.group(1) if kernel else self.kinds.get(name) or "layer"


def _sources(layer: Mapping[str, Any]) -> list[str]:
    """Names of the operators that a layer was made of."""
    names = []
    for match in _ONNX_LAYER.findall(str(layer.get("Metadata", ""))):
        names.append(match.strip())
    return names


def median_times(runs: Sequence[Run], names: LayerNames) -> list[LocalTime]:
    """Median time per layer over the runs, in order of execution; a layer reported twice counts twice."""
    if not runs or not runs[0]:
        return []
    counts = min(len(run) for run in runs)
    return [names.local(runs[0][index][0], median(run[index][1] for run in runs)) for index in range(counts)]
