"""Merging: products of one tensor with several weights (query, key and value) become one product."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from routecast.datasets.graph import Graph
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.backends.base import Array
from routecast.tuner.passes.base import GraphPass, PassContext, PassFailed
from routecast.tuner.passes.conversion import opset_of
from routecast.tuner.patterns import GraphFacts

_KNOB = "form.merge_projections"
_SPLIT_SIZES_OPSET = 13  # from here on Split takes its sizes as an input


class Merging(GraphPass):
    """X W1 + b1, X W2 + b2, ... become X [W1 W2 ...] + [b1 b2 ...] and a Split."""

    name: ClassVar[str] = "merging"

    def space(self, graph: Graph) -> RouteSpace:
        """One switch, for graphs that multiply one tensor by two weights or more."""
        readers = Counter(node.inputs[0] for node in GraphFacts(graph).weighted("MatMul"))
        if not any(count > 1 for count in readers.values()):
            return RouteSpace((), {_KNOB: "no tensor is multiplied by two weights or more"})
        help_text = "multiply a tensor by all its weights at once (query, key and value) and split the result"
        return RouteSpace((Knob(_KNOB, ("off", "on"), "off", help_text, stage="build"),))

    def wanted(self, route: Route) -> bool:
        """Whether the switch is on."""
        return route.get(_KNOB, "off") == "on"

    def apply(self, model: ModelProto, context: PassContext) -> ModelProto:
        """Merges every group of products that can be.

        Raises:
            PassFailed: there is none, or the opset is too old.
        """
        if opset_of(model) < _SPLIT_SIZES_OPSET:
            raise PassFailed(f"merging needs opset {_SPLIT_SIZES_OPSET} or later, the model has {opset_of(model)}")
        merged = 0
        for group in _groups(model):
            _merge(model, group, merged)
            merged += 1
        if not merged:
            raise PassFailed("no products of one tensor can be merged")
        return model


@dataclass(frozen=True)
class _Product:
    """X W, or X W + b when a bias is added to it and to nothing else."""

    product: NodeProto
    weight: Array
    add: NodeProto | None
    bias: Array | None

    @property
    def output(self) -> str:
        return str((self.add or self.product).output[0])


def _groups(model: ModelProto) -> list[list[_Product]]:
    """Products of the same tensor by weights of the same height, all with a bias or all without."""
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    consumers: defaultdict[str, list[NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            consumers[name].append(node)
    outputs = {value.name for value in graph.output}
    found: defaultdict[tuple[str, int, bool, str], list[_Product]] = defaultdict(list)
    for node in graph.node:
        if node.op_type != "MatMul" or node.input[1] not in weights:
            continue
        weight = numpy_helper.to_array(weights[node.input[1]])
        if weight.ndim != 2:
            continue
        add, bias = _bias(node, weight.shape[1], weights, consumers, outputs)
        key = (node.input[0], weight.shape[0], add is not None, str(weight.dtype))
        found[key].append(_Product(node, weight, add, bias))
    return [group for group in found.values() if len(group) > 1]


def _bias(
    product: NodeProto,
    width: int,
    weights: dict[str, TensorProto],
    consumers: dict[str, list[NodeProto]],
    outputs: set[str],
) -> tuple[NodeProto | None, Array | None]:
    name = product.output[0]
    readers = consumers[name]
    if len(readers) != 1 or readers[0].op_type != "Add" or name in outputs:
        return None, None
    other = next((each for each in readers[0].input if each != name), "")
    if other not in weights:
        return None, None
    bias = numpy_helper.to_array(weights[other])
    return (readers[0], bias) if bias.shape == (width,) else (None, None)


def _merge(model: ModelProto, group: list[_Product], number: int) -> None:
    graph, prefix = model.graph, f"routecast_merged_{number}"
    source = group[0].product.input[0]
    sizes = np.array([each.weight.shape[1] for each in group], np.int64)
    new = [numpy_helper.from_array(np.concatenate([each.weight for each in group], axis=1), f"{prefix}_weight")]
    new.append(numpy_helper.from_array(sizes, f"{prefix}_sizes"))
    nodes = [helper.make_node("MatMul", [source, f"{prefix}_weight"], [f"{prefix}_product"], name=f"{prefix}_MatMul")]
    biases = [each.bias for each in group if each.bias is not None]
    if biases:
        new.append(numpy_helper.from_array(np.concatenate(biases), f"{prefix}_bias"))
        added = [f"{prefix}_product", f"{prefix}_bias"]
        nodes.append(helper.make_node("Add", added, [f"{prefix}_sum"], name=f"{prefix}_Add"))
    outputs = [each.output for each in group]
    nodes.append(
        helper.make_node("Split", [nodes[-1].output[0], f"{prefix}_sizes"], outputs, name=f"{prefix}_Split", axis=-1)
    )
    gone = {node.output[0] for each in group for node in (each.product, each.add) if node is not None}
    place = next(index for index, node in enumerate(graph.node) if node.output[0] in gone)
    kept = [node for node in graph.node if not node.output or node.output[0] not in gone]
    copies = [_copy(node) for node in (*kept[:place], *nodes, *kept[place:])]
    del graph.node[:]
    graph.node.extend(copies)
    graph.initializer.extend(new)


def _copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy
