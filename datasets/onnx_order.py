"""The order of operators: each after those it reads from, as shape inference and many tools expect."""

from __future__ import annotations

from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto

from routecast.datasets.errors import UsageError
from routecast.datasets.onnx_file import subgraphs


def sort_operators(proto: ModelProto, path: Path) -> None:
    """Puts the operators of a model and of its subgraphs in order; those that are so already stay in place.

    Raises:
        UsageError: operators form a cycle.
    """
    _sort(proto.graph, path)


def _sort(graph: GraphProto, path: Path) -> None:
    for node in graph.node:
        for inner in subgraphs(node):
            _sort(inner, path)
    ordered = _ordered(graph, path)
    if ordered != list(range(len(graph.node))):
        nodes = [NodeProto.FromString(graph.node[index].SerializeToString()) for index in ordered]
        del graph.node[:]
        graph.node.extend(nodes)


def _ordered(graph: GraphProto, path: Path) -> list[int]:
    made = {name for node in graph.node for name in node.output if name}
    done: set[str] = set()
    ordered: list[int] = []
    waiting = [(index, _reads(node) & made, node) for index, node in enumerate(graph.node)]
    while waiting:
        later = []
        for index, reads, node in waiting:
            if reads <= done:
                ordered.append(index)
                done.update(node.output)
            else:
                later.append((index, reads, node))
        if len(later) == len(waiting):
            names = ", ".join(repr(node.name or node.op_type) for _, _, node in later[:3])
            raise UsageError(f"{path}: operators {names} wait for each other in a cycle; export the model again")
        waiting = later
    return ordered


def _reads(node: NodeProto) -> set[str]:
    """Names of all values a node needs from around it, those its subgraphs take from outside included."""
    names = set(node.input)
    for graph in subgraphs(node):
        inner = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        inner.update(name for child in graph.node for name in child.output)
        names |= {name for child in graph.node for name in _reads(child)} - inner
        names |= {value.name for value in graph.output} - inner
    return names
