"""Turns graphs, route tokens and environments into arrays.

Numbers are logarithms scaled by constants to the order of 1, so that nothing has to be fitted to the data and
a feature means the same for every model, backend and device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from routecast.costmodel.texts import encode, words
from routecast.datasets.environment import INSTRUCTION_SETS, Environment
from routecast.datasets.graph import ITEM_BYTES, Attribute, Graph, Node, Tensor

Token = tuple[str, str]
"""A knob's name and a value that is not its default."""

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

NODE_TEXTS, NODE_NUMBERS = 12, 30
TOKEN_TEXTS, TOKEN_NUMBERS = 16, 4
GRAPH_NUMBERS = 9
ENVIRONMENT_NAMES = (
    "cores", "threads", "clock_mhz", "memory_gb", "l2_mb", "l3_mb", "bandwidth_gbs", "peak_gflops",
    "streaming_multiprocessors", "compute_capability", "memory_clock_mhz", "power_limit_w",
    *INSTRUCTION_SETS,
)  # fmt: skip
ENVIRONMENT_TEXTS, ENVIRONMENT_NUMBERS = 20, 2 * len(ENVIRONMENT_NAMES)

_ROOFLINE = 5
"""Where the sum of the roofline times is in the figures of a whole graph."""
_WINDOW = frozenset(("kernel_shape", "strides", "dilations", "pads", "group"))
_SAFE_GFLOPS, _SAFE_GBS, _OVERHEAD_MS = 100.0, 20.0, 0.002


@dataclass(frozen=True)
class GraphFeatures:
    """A graph of N nodes and E edges for one device.

    Attributes:
        texts: buckets of operator names, shape (N, NODE_TEXTS).
        numbers: sizes, shapes and attributes, shape (N, NODE_NUMBERS).
        roofline: ln of the roofline time in ms (``roofline_ms``), shape (N,).
        edges: producer and consumer, shape (2, E).
        summary: figures of the whole graph, shape (GRAPH_NUMBERS,).
    """

    texts: Integers
    numbers: Floats
    roofline: Floats
    edges: Integers
    summary: Floats


@dataclass(frozen=True)
class TextFeatures:
    """Something described by texts and numbers: T tokens, or one environment (T = 1).

    Attributes:
        texts: buckets, shape (T, width).
        numbers: shape (T, count).
    """

    texts: Integers
    numbers: Floats


def roofline_ms(graph: Graph, environment: Environment) -> npt.NDArray[np.float64]:
    """Time of each node in ms as the roofline model has it, shape (N,).

    max(FLOPs / peak, bytes / bandwidth) + overhead of a call (Williams et al., "Roofline", 2009); devices
    whose peak or bandwidth is unknown get those of a modest CPU.
    """
    peak = max(environment.numbers.get("peak_gflops", _SAFE_GFLOPS), 1e-3) * 1e6
    bandwidth = max(environment.numbers.get("bandwidth_gbs", _SAFE_GBS), 1e-3) * 1e6
    flops = np.array([node.flops for node in graph.nodes], np.float64)
    size = np.array([node.bytes for node in graph.nodes], np.float64)
    return np.maximum(flops / peak, size / bandwidth) + _OVERHEAD_MS


def graph_features(graph: Graph, environment: Environment) -> GraphFeatures:
    """Encodes a graph; only the roofline, and its sum in the summary, depend on the environment."""
    edges = np.array(graph.edges(), np.int64).reshape(-1, 2).T
    consumers = np.bincount(edges[0], minlength=len(graph.nodes))
    flops, size = graph.flops + 1.0, sum(node.bytes for node in graph.nodes) + 1.0
    numbers = np.array(
        [
            [
                *_work(node, flops, size),
                *_shapes(graph, node),
                *_window(node.attributes, _output(graph, node)),
                min(node.depth, 4) / 2,
                index / len(graph.nodes),
                math.log2(1 + consumers[index]) / 3,
            ]
            for index, node in enumerate(graph.nodes)
        ],
        np.float32,
    )
    times = roofline_ms(graph, environment)
    return GraphFeatures(
        texts=np.stack([_node_texts(graph, node) for node in graph.nodes]),
        numbers=numbers.reshape(-1, NODE_NUMBERS),
        roofline=np.log(times).astype(np.float32),
        edges=np.ascontiguousarray(edges),
        summary=_summary(graph, flops, size, times),
    )


def for_environment(features: GraphFeatures, graph: Graph, environment: Environment) -> GraphFeatures:
    """The features of the same graph for another device; arrays that the device does not change are shared."""
    times, summary = roofline_ms(graph, environment), features.summary.copy()
    summary[_ROOFLINE] = _log_sum(times)
    return replace(features, roofline=np.log(times).astype(np.float32), summary=summary)


def _log_sum(times: npt.NDArray[np.float64]) -> float:
    return math.log2(times.sum()) / 8


def _summary(graph: Graph, flops: float, size: float, times: npt.NDArray[np.float64]) -> Floats:
    floating = sum(_output(graph, node).dtype.startswith(("float", "bfloat")) for node in graph.nodes)
    values = (
        math.log2(len(graph.nodes)) / 8,
        math.log2(flops) / 32,
        math.log2(size) / 28,
        math.log2(1 + graph.weight_bytes) / 26,
        math.log2(flops / size) / 6,
        _log_sum(times),
        max(node.depth for node in graph.nodes) / 2,
        floating / len(graph.nodes),
        len(graph.ops) / 32,
    )
    return np.array(values, np.float32)


def _output(graph: Graph, node: Node) -> Tensor:
    index = next((index for index in node.outputs if index >= 0), None)
    return Tensor(None, "") if index is None else graph.tensors[index]


def _node_texts(graph: Graph, node: Node) -> Integers:
    described = [
        f"attribute:{name}={value}"
        for name, value in sorted(node.attributes.items())
        if name not in _WINDOW and isinstance(value, (str, int)) and len(str(value)) < 24
    ]
    parts = [f"word:{word}" for word in words(node.op)]
    return encode([f"op:{node.op}"], [*parts[:4], f"dtype:{_output(graph, node).dtype}", *described], NODE_TEXTS)


def _work(node: Node, flops: float, size: float) -> tuple[float, ...]:
    return (
        math.log2(1 + node.flops) / 26,
        math.log2(1 + node.bytes) / 22,
        math.log2((1 + node.flops) / (1 + node.bytes)) / 6,
        node.flops / flops,
        node.bytes / size,
    )


def _shapes(graph: Graph, node: Node) -> tuple[float, ...]:
    inputs = [graph.tensors[index] for index in node.inputs if index >= 0]
    output = _output(graph, node)
    shape = output.shape or ()
    first, second, before, last = _dimensions(shape)
    return (
        math.log2(1 + output.elements) / 18,
        math.log2(1 + sum(tensor.elements for tensor in inputs if not tensor.constant)) / 18,
        math.log2(1 + sum(tensor.elements for tensor in inputs if tensor.constant)) / 18,
        float(output.shape is None),
        len(shape) / 4,
        math.log2(1 + first) / 6,
        math.log2(1 + second) / 8,
        math.log2(1 + before) / 8,
        math.log2(1 + last) / 8,
        float(second % 16 == 0),
        float(last % 16 == 0),
        ITEM_BYTES.get(output.dtype, 4) / 4,
        float(output.dtype.startswith(("float", "bfloat"))),
        len(inputs) / 3,
        len(node.outputs) / 3,
    )


def _dimensions(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """First, second, last but one and last dimension; 1 for those a shape lacks."""
    padded = (1, 1, *shape)
    return shape[0] if shape else 1, shape[1] if len(shape) > 1 else 1, padded[-2], padded[-1]


def _window(attributes: Mapping[str, Attribute], output: Tensor) -> tuple[float, ...]:
    kernel, group = _product(attributes.get("kernel_shape")), _product(attributes.get("group"))
    channels = output.shape[1] if output.shape and len(output.shape) > 2 else 0
    return (
        float("kernel_shape" in attributes),
        math.log2(kernel) / 4,
        math.log2(_product(attributes.get("strides"))) / 2,
        math.log2(_product(attributes.get("dilations"))) / 2,
        math.log2(group) / 8,
        float(group > 1 and group == channels),
        math.log2(1 + sum(_integers(attributes.get("pads")))) / 3,
    )


def _integers(value: Attribute | None) -> list[int]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [max(0, int(item)) for item in values if isinstance(item, (int, float)) and math.isfinite(item)]


def _product(value: Attribute | None) -> int:
    return max(1, math.prod(_integers(value)))


def token_features(tokens: Iterable[Token]) -> TextFeatures:
    """Encodes T tokens; texts have shape (T, TOKEN_TEXTS), numbers (T, TOKEN_NUMBERS)."""
    encoded = [_token(*token) for token in tokens]
    return TextFeatures(
        np.array([texts for texts, _ in encoded], np.int64).reshape(-1, TOKEN_TEXTS),
        np.array([numbers for _, numbers in encoded], np.float32).reshape(-1, TOKEN_NUMBERS),
    )


@lru_cache(maxsize=16384)
def _token(name: str, value: str) -> tuple[Integers, tuple[float, ...]]:
    parts = [f"word:{word}" for word in words(name)[:8]] + [f"value:{word}" for word in words(value)[:4]]
    texts = encode([f"knob:{name}", f"knob:{name}={value}"], parts, TOKEN_TEXTS)
    try:
        number = float(value)
    except ValueError:
        return texts, (0.0, 0.0, 0.0, 0.0)
    number = number if math.isfinite(number) else 0.0
    return texts, (1.0, math.log2(1 + abs(number)) / 4, float(number < 0), float(number == 0))


def environment_features(environment: Environment) -> TextFeatures:
    """Encodes an environment; texts have shape (1, ENVIRONMENT_TEXTS), numbers (1, ENVIRONMENT_NUMBERS).

    The first half of the numbers are logarithms, 0 where unknown; the second half says which are known.
    """
    texts = encode(
        [f"backend:{environment.backend}", f"device:{environment.device}"],
        [
            f"version:{environment.backend}:{environment.minor_version}",
            f"tuner:{environment.tuner_version}",
            *(f"part:{word}" for word in words(environment.device)),
        ],
        ENVIRONMENT_TEXTS,
    )
    known = [environment.numbers.get(name) for name in ENVIRONMENT_NAMES]
    logs = [0.0 if value is None else math.log2(1 + max(value, 0.0)) / 8 for value in known]
    mask = [float(value is not None) for value in known]
    return TextFeatures(texts[None], np.array([[*logs, *mask]], np.float32))
