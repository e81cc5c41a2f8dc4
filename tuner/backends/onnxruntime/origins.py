"""Which node of the original graph a node that ONNX Runtime executes came from."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

_WORD = re.compile(r"[A-Za-z0-9]+")
_FUSED_NODES = 4
"""Most nodes of a chain that becomes one, counted from the last back to the one it is named for."""


class Origins:
    """Finds the node of the original graph that an executed node came from.

    ONNX Runtime's transformers keep the names of tensors that leave what they replace, and name what is new
    after the nodes or tensors they replace: ``fused /conv1/Conv``, ``/conv1/Conv_output_0_nchwc``,
    ``/fc/MatMul/MatMulAddFusion``. So the origin is, in this order: the node of the very name; the node that
    computes a tensor which the executed node computes; the node whose name or computed tensor is the longest
    that stands whole in the executed node's name, with no letter or digit right before or after.

    If that node is of another kind than the executed one, as the Relu after a fused Conv is, the origin
    is the nearest node before it that is of the kind. Of the nodes that a fused node replaces, it counts for
    the one it is named for.

    Args:
        model: the original model.
        nodes: index into ``Graph.nodes`` by node name; nodes without a name get their place in the file.
        executed: names of the tensors that each executed node computes, by its name.
    """

    def __init__(
        self, model: ModelProto, nodes: Mapping[str, int], executed: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self._nodes = dict(nodes)
        self._executed = executed or {}
        self._tensors: dict[str, int] = {}
        self._kinds: dict[int, str] = {}
        self._before: dict[int, list[int]] = {}
        self._read(model)
        # Names are filed under their first word, so that a look-up tries only the few that can match.
        self._names = {**self._tensors, **self._nodes}
        self._by_word: dict[str, list[str]] = defaultdict(list)
        for name in self._names:
            if match := _WORD.search(name):
                self._by_word[match.group()].append(name)

    def node(self, executed: str, op: str = "") -> int:
        """Index into ``Graph.nodes`` of the origin of an executed node, -1 when it has none.

        Args:
            executed: name of the executed node.
            op: its operator type; empty when it does not matter.
        """
        if executed in self._nodes:
            return self._nodes[executed]
        found = self._by_tensor(executed)
        return self._of_kind(found if found >= 0 else self._by_name(executed), op)

    def _read(self, model: ModelProto) -> None:
        counted = (node for node in _walk(model.graph) if node.op_type != "Constant")
        for place, node in enumerate(counted):
            # Inlining functions moves places, but names what it makes.
            index = self._nodes.get(node.name, -1 if model.functions else place)
            if index >= 0:
                self._kinds[index] = node.op_type
                self._before[index] = [self._tensors[name] for name in node.input if name in self._tensors]
                self._tensors.update((name, index) for name in node.output if name)

    def _by_tensor(self, executed: str) -> int:
        tensors = self._executed.get(executed, ())
        return next((self._tensors[name] for name in tensors if name in self._tensors), -1)

    def _by_name(self, executed: str) -> int:
        words = dict.fromkeys(_WORD.findall(executed))
        found = [name for word in words for name in self._by_word.get(word, ()) if _stands_in(name, executed)]
        return self._names[max(found, key=len)] if found else -1

    def _of_kind(self, index: int, op: str) -> int:
        reached = [index] if index >= 0 and op else []
        for _ in range(_FUSED_NODES):
            for node in reached:
                if _same_kind(self._kinds.get(node, ""), op):
                    return node
            reached = list(dict.fromkeys(before for node in reached for before in self._before.get(node, ())))
        return index


def computed_tensors(model: ModelProto) -> dict[str, list[str]]:
    """Names of the tensors that each node computes, by the node's name."""
    return {node.name: list(node.output) for node in _walk(model.graph)}


def _walk(graph: GraphProto) -> Iterator[NodeProto]:
    """All nodes, those of subgraphs after the node that holds them: the order of ``Graph.nodes``."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _walk(attribute.g)
            elif attribute.type == AttributeProto.GRAPHS:
                for body in attribute.graphs:
                    yield from _walk(body)


def _same_kind(original: str, executed: str) -> bool:
    """Whether one is the core of the other: Conv of QLinearConv, MatMul of Gemm, but not Mul of MatMul."""
    original, executed = (re.sub("Gemm|MatMul", "Matmul", op) for op in (original, executed))
    return bool(original) and original in executed


def _stands_in(name: str, executed: str) -> bool:
    start = executed.find(name)
    while start >= 0:
        end = start + len(name)
        if not executed[max(0, start - 1) : start].isalnum() and not executed[end : end + 1].isalnum():
            return True
        start = executed.find(name, start + 1)
    return False
