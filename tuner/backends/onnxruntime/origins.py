"""Which node of the original graph a node that ONNX Runtime executes came from."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

_WORD = re.compile(r"[A-Za-z0-9]+")


class Origins:
    """Finds the node of the original graph that an executed node came from.

    ONNX Runtime's transformers keep the names of the tensors that leave what they replace, and name what they make
    after the nodes or tensors they replace: ``fused /conv1/Conv``, ``/conv1/Conv_output_0_nchwc``,
    ``/fc/MatMul/MatMulAddFusion``. So the origin is, in this order: the node of the very name; the node that computes
    a tensor which the executed node computes; the node whose name or computed tensor is the longest that stands whole
    in the executed node's name, with no letter or digit right before or after. A fused node thus counts for one of the
    nodes it replaces, and what ONNX Runtime only inserts (reorderings of layouts) for none.

    Args:
        model: the original model.
        nodes: index into ``Graph.nodes`` by node name; nodes without a name get their place in the file.
        executed: names of the tensors that each executed node computes, by its name.
    """

    def __init__(
        self, model: ModelProto, nodes: Mapping[str, int], executed: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self._nodes = dict(nodes)
        self._tensors = _producers(model, nodes)
        self._executed = executed or {}
        # Names are filed under their first word, so that a look-up tries only the few that can match.
        self._by_word: dict[str, list[str]] = defaultdict(list)
        self._names = {**self._tensors, **self._nodes}
        for name in self._names:
            if match := _WORD.search(name):
                self._by_word[match.group()].append(name)

    def node(self, executed: str) -> int:
        """Index into ``Graph.nodes`` of the origin of an executed node, -1 when it has none."""
        if executed in self._nodes:
            return self._nodes[executed]
        for tensor in self._executed.get(executed, ()):
            if tensor in self._tensors:
                return self._tensors[tensor]
        words = dict.fromkeys(_WORD.findall(executed))
        found = [name for word in words for name in self._by_word.get(word, ()) if _stands_in(name, executed)]
        return self._names[max(found, key=len)] if found else -1


def computed_tensors(model: ModelProto) -> dict[str, list[str]]:
    """Names of the tensors that each node computes, by the node's name."""
    return {node.name: list(node.output) for node in _walk(model.graph)}


def _producers(model: ModelProto, nodes: Mapping[str, int]) -> dict[str, int]:
    """Index of the node that computes each tensor."""
    producers: dict[str, int] = {}
    counted = (node for node in _walk(model.graph) if node.op_type != "Constant")
    for place, node in enumerate(counted):
        # Inlining functions moves places, but names what it makes.
        index = nodes.get(node.name, -1 if model.functions else place)
        if index >= 0:
            producers.update((output, index) for output in node.output if output)
    return producers


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


def _stands_in(name: str, executed: str) -> bool:
    start = executed.find(name)
    while start >= 0:
        end = start + len(name)
        if not executed[max(0, start - 1) : start].isalnum() and not executed[end : end + 1].isalnum():
            return True
        start = executed.find(name, start + 1)
    return False
