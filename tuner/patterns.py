"""What a graph holds, asked quickly: which operators, which operator after which, which weights."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cached_property

from routecast.datasets.graph import Graph, Node

WEIGHTED_OPS = ("Conv", "ConvTranspose", "MatMul", "Gemm")


class GraphFacts:
    """Answers about one graph; the costly ones are computed once.

    Args:
        graph: the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def has(self, *ops: str) -> bool:
        """Whether it holds any of the operator types."""
        return not self.graph.ops.isdisjoint(ops)

    def follows(self, first: str | Iterable[str], second: str | Iterable[str], hops: int = 1) -> bool:
        """Whether an operator of type ``second`` comes within ``hops`` edges after one of type ``first``."""
        firsts, seconds = _as_set(first), _as_set(second)
        nodes = self.graph.nodes
        reached = {index for index, node in enumerate(nodes) if node.op in firsts}
        for _ in range(hops):
            reached = {after for index in reached for after in self._successors[index]}
            if any(nodes[index].op in seconds for index in reached):
                return True
        return False

    @cached_property
    def _successors(self) -> dict[int, list[int]]:
        successors: dict[int, list[int]] = defaultdict(list)
        for producer, consumer in self.graph.edges():
            successors[producer].append(consumer)
        return successors

    def before(self, node: Node, *ops: str) -> list[Node]:
        """Operators of the types that a node reads from, in the order of its inputs."""
        made = self._producers
        return [made[tensor] for tensor in node.inputs if tensor in made and made[tensor].op in ops]

    @cached_property
    def _producers(self) -> dict[int, Node]:
        return {tensor: node for node in self.graph.nodes for tensor in node.outputs if tensor >= 0}

    def constant_inputs(self, node: Node) -> list[bool]:
        """For each input present, whether it is an initialiser or the output of a Constant operator."""
        return [self._constant(tensor) for tensor in node.inputs if tensor >= 0]

    def _constant(self, tensor: int) -> bool:
        return self.graph.tensors[tensor].constant or tensor in self._constant_outputs

    @cached_property
    def _constant_outputs(self) -> frozenset[int]:
        constants = [node for node in self.graph.nodes if node.op == "Constant"]
        return frozenset(tensor for node in constants for tensor in node.outputs if tensor >= 0)

    def weighted(self, *ops: str) -> list[Node]:
        """Operators of the types (``WEIGHTED_OPS`` when none is given) with a constant second input."""
        return [
            node
            for node in self.graph.nodes
            if node.op in (ops or WEIGHTED_OPS) and len(node.inputs) > 1 and self._constant(node.inputs[1])
        ]

    @cached_property
    def has_branches(self) -> bool:
        """Whether two operators can run at the same time: neither needs the other's output."""
        return _has_equal_depths(
            [node for node in self.graph.nodes if node.depth == 0 and not all(self.constant_inputs(node))]
        )

    @cached_property
    def foldable(self) -> bool:
        """Whether some operator can be computed before inference: from constants or fixed shapes alone."""
        return any(
            node.op in ("Shape", "Size") or (node.inputs and all(self.constant_inputs(node)))
            for node in self.graph.nodes
        )

    @cached_property
    def reads(self) -> Counter[int]:
        """By tensor, how often operators read it, and once more where it is an output of the graph."""
        return Counter([tensor for node in self.graph.nodes for tensor in node.inputs] + list(self.graph.outputs))

    @cached_property
    def siblings(self) -> Counter[str]:
        """By operator type, the most operators of that type that read the same tensor first."""
        readers = Counter((node.op, node.inputs[0]) for node in self.graph.nodes if node.inputs)
        most: Counter[str] = Counter()
        for (op, _), count in readers.items():
            most[op] = max(most[op], count)
        return most

    @cached_property
    def duplicates(self) -> bool:
        """Whether two operators may compute the same: alike in type, attributes and inputs.

        Small constants of one shape and type count as alike: their values are not known here.
        """
        seen: set[object] = set()
        for node in self.graph.nodes:
            if node.op == "Constant" or not node.inputs:
                continue
            key = (node.op, tuple(map(self._alike, node.inputs)), repr(sorted(node.attributes.items())))
            if key in seen:
                return True
            seen.add(key)
        return False

    def _alike(self, index: int) -> object:
        if index < 0 or not self._constant(index):
            return index
        tensor = self.graph.tensors[index]
        return (tensor.shape, tensor.dtype) if tensor.elements <= 8 else index


def cores() -> int:
    """Number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _as_set(ops: str | Iterable[str]) -> frozenset[str]:
    return frozenset({ops} if isinstance(ops, str) else ops)


def _has_equal_depths(nodes: list[Node]) -> bool:
    """Whether two operators have equally long paths to them; when none have, the operators form a chain."""
    depths: dict[int, int] = {}
    taken: set[int] = set()
    for node in nodes:
        depth = 1 + max((depths.get(tensor, 0) for tensor in node.inputs if tensor >= 0), default=0)
        if depth in taken:
            return True
        taken.add(depth)
        depths.update((tensor, depth) for tensor in node.outputs if tensor >= 0)
    return False
