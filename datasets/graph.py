"""A model's graph: its operators and tensors, without weight values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Attribute = int | float | str | list[int] | list[float]


@dataclass(frozen=True)
class Tensor:
    """A value that flows along an edge.

    Attributes:
        shape: its dimensions; None when shape inference could not tell.
        dtype: numpy's name of the element type (``float32``, ``int64``, ``bfloat16``...), empty when unknown.
        constant: whether it is a weight or another initialiser.
    """

    shape: tuple[int, ...] | None
    dtype: str
    constant: bool = False

    @property
    def elements(self) -> int:
        """Number of elements, 0 when the shape is unknown."""
        if self.shape is None:
            return 0
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def bytes(self) -> int:
        """Size in bytes, 0 when the shape is unknown."""
        return self.elements * ITEM_BYTES.get(self.dtype, 4)


ITEM_BYTES: Mapping[str, int] = {
    "float64": 8, "int64": 8, "uint64": 8, "complex64": 8, "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2,
    "int8": 1, "uint8": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Node:
    """One operator.

    Attributes:
        op: operator type; those of other domains than ONNX's own carry it: ``com.microsoft::Gelu``.
        name: its name in the file, for people and for matching profiles; not part of the fingerprint.
        inputs, outputs: indices into ``Graph.tensors``, -1 for an optional one that is absent.
        attributes: scalars, texts and short lists; tensors and subgraphs are left out.
        flops: floating point operations of one execution, estimated from the shapes.
        bytes: bytes read and written by one execution.
        depth: 0 in the main graph, more inside the bodies of If, Loop and Scan.
    """

    op: str
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    flops: float = 0.0
    bytes: float = 0.0
    depth: int = 0


@dataclass(frozen=True)
class Graph:
    """The operators of a model in topological order, and its tensors.

    Attributes:
        nodes: the operators; those of subgraphs follow the operator that holds them.
        tensors: the values.
        inputs, outputs: indices into ``tensors``.
        opset: version of ONNX's own operator set.
    """

    nodes: tuple[Node, ...]
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    opset: int

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits: a hash of the graph without names and weight values."""
        content = [
            [[node.op, node.inputs, node.outputs, sorted(node.attributes.items()), node.depth] for node in self.nodes],
            [[tensor.shape, tensor.dtype, tensor.constant] for tensor in self.tensors],
            self.inputs,
            self.outputs,
            self.opset,
        ]
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()[:32]

    @cached_property
    def ops(self) -> frozenset[str]:
        """The operator types it holds."""
        return frozenset(node.op for node in self.nodes)

    @property
    def flops(self) -> float:
        """Floating point operations of one inference."""
        return sum(node.flops for node in self.nodes)

    @property
    def weight_bytes(self) -> int:
        """Size of all constants in bytes."""
        return sum(tensor.bytes for tensor in self.tensors if tensor.constant)

    def edges(self) -> list[tuple[int, int]]:
        """Pairs (producer, consumer) of node indices, once per tensor that connects them."""
        producer = {tensor: index for index, node in enumerate(self.nodes) for tensor in node.outputs if tensor >= 0}
        return [
            (producer[tensor], index)
            for index, node in enumerate(self.nodes)
            for tensor in node.inputs
            if tensor in producer
        ]

    def to_json(self) -> dict[str, Any]:
        """A compact JSON-serialisable form, which ``from_json`` reads."""
        return {
            "opset": self.opset,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "tensors": [[tensor.shape, tensor.dtype, int(tensor.constant)] for tensor in self.tensors],
            "nodes": [
                [
                    node.op,
                    node.name,
                    node.inputs,
                    node.outputs,
                    dict(node.attributes),
                    node.flops,
                    node.bytes,
                    node.depth,
                ]
                for node in self.nodes
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Graph:
        """Reads what ``to_json`` wrote."""
        return cls(
            nodes=tuple(
                Node(op, name, tuple(inputs), tuple(outputs), attributes, flops, size, depth)
                for op, name, inputs, outputs, attributes, flops, size, depth in data["nodes"]
            ),
            tensors=tuple(
                Tensor(None if shape is None else tuple(shape), dtype, bool(constant))
                for shape, dtype, constant in data["tensors"]
            ),
            inputs=tuple(data["inputs"]),
            outputs=tuple(data["outputs"]),
            opset=data["opset"],
        )
