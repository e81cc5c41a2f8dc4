"""From an ONNX model with inferred shapes to a Graph."""

from __future__ import annotations

from collections import ChainMap
from pathlib import Path

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

from routecast.datasets.errors import UsageError
from routecast.datasets.flops import count_bytes, count_flops
from routecast.datasets.graph import Attribute, Graph, Node, Tensor
from routecast.datasets.onnx_file import domain_of, opsets, subgraphs
from routecast.datasets.shapes import dimensions, dtype_name, real_inputs

LONGEST = 16
"""Longest list kept as an attribute."""

UNKNOWN = Tensor(None, "")

Scope = ChainMap[str, int]
Types = ChainMap[str, Tensor]


def build_graph(proto: ModelProto, path: Path) -> Graph:
    """Builds the graph of a model whose operators are in order and whose shapes have been inferred.

    Tensors are numbered inputs first, then as the operators mention them, so that the order of initialisers
    in the file does not matter. Constant nodes become constant tensors, and unused initialisers are left out.

    Raises:
        UsageError: an operator reads a value that nothing computes.
    """
    builder = _Builder(path)
    scope, types = Scope({}), Types({})
    inputs = [value.name for value in real_inputs(proto)]
    builder.declare(proto.graph, types)
    for name in inputs:
        builder.define(name, scope, types)
    builder.add_graph(proto.graph, scope, types, depth=0)
    outputs = tuple(builder.read(value.name, scope, types, "the model's outputs") for value in proto.graph.output)
    return Graph(
        nodes=tuple(node for node in builder.nodes if node is not None),
        tensors=tuple(builder.tensors),
        inputs=tuple(scope[name] for name in inputs),
        outputs=outputs,
        opset=opsets(proto).get("", 1),
    )


class _Builder:
    """Collects nodes and tensors while it walks the graph and its subgraphs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.nodes: list[Node | None] = []
        self.tensors: list[Tensor] = []

    def declare(self, graph: GraphProto, types: Types) -> None:
        """Notes the types of a graph's values and constants."""
        for value in (*graph.input, *graph.value_info, *graph.output):
            types[value.name] = _tensor(value)
        for stored in graph.initializer:
            types[stored.name] = _constant(stored)
        for sparse in graph.sparse_initializer:
            types[sparse.values.name] = Tensor(tuple(sparse.dims), dtype_name(sparse.values.data_type), constant=True)

    def define(self, name: str, scope: Scope, types: Types) -> int:
        """Gives a value its index."""
        if not name:
            return -1
        scope[name] = len(self.tensors)
        self.tensors.append(types.get(name, UNKNOWN))
        return scope[name]

    def read(self, name: str, scope: Scope, types: Types, reader: str) -> int:
        """The index of a value that is read; constants get theirs when they are first read."""
        if not name:
            return -1
        if name not in scope:
            if not types.get(name, UNKNOWN).constant:
                raise UsageError(f"{self.path}: {reader} read {name!r}, which nothing computes; export the model again")
            return self.define(name, scope, types)
        return scope[name]

    def add_graph(self, graph: GraphProto, scope: Scope, types: Types, depth: int) -> None:
        """Adds a graph's nodes, those of subgraphs after the node that holds them."""
        for node in graph.node:
            constant = _constant_node(node)
            if constant is not None:
                types[node.output[0]] = constant
                continue
            self._add_node(node, scope, types, depth)

    def _add_node(self, node: NodeProto, scope: Scope, types: Types, depth: int) -> None:
        reader = f"operator {node.op_type} {node.name!r}"
        inputs = tuple(self.read(name, scope, types, reader) for name in node.input)
        place = len(self.nodes)
        self.nodes.append(None)  # its outputs are numbered after the insides of its subgraphs
        for graph in subgraphs(node):
            self._add_subgraph(graph, scope, types, depth + 1)
        outputs = tuple(self.define(name, scope, types) for name in node.output)
        domain = domain_of(node.domain)
        op = f"{domain}::{node.op_type}" if domain else node.op_type
        attributes = _attributes(node)
        read = [self.tensors[index] if index >= 0 else None for index in inputs]
        written = [self.tensors[index] if index >= 0 else None for index in outputs]
        flops, size = count_flops(op, attributes, read, written), count_bytes(op, read, written)
        self.nodes[place] = Node(op, node.name, inputs, outputs, attributes, flops, size, depth)

    def _add_subgraph(self, graph: GraphProto, scope: Scope, types: Types, depth: int) -> None:
        scope, types = scope.new_child(), types.new_child()
        self.declare(graph, types)
        for value in graph.input:
            self.define(value.name, scope, types)
        self.add_graph(graph, scope, types, depth)


def _tensor(value: ValueInfoProto) -> Tensor:
    kind: TypeProto = value.type
    if kind.WhichOneof("value") != "tensor_type":
        return UNKNOWN
    shape = dimensions(kind.tensor_type)
    known = None if shape is None else tuple(size for size in shape if isinstance(size, int))
    complete = known is not None and shape is not None and len(known) == len(shape)
    return Tensor(known if complete else None, dtype_name(kind.tensor_type.elem_type))


def _constant(stored: TensorProto) -> Tensor:
    return Tensor(tuple(stored.dims), dtype_name(stored.data_type), constant=True)


def _constant_node(node: NodeProto) -> Tensor | None:
    """What a Constant node holds; None for any other node."""
    if node.op_type != "Constant" or domain_of(node.domain) or len(node.attribute) != 1:
        return None
    attribute = node.attribute[0]
    if attribute.type == AttributeProto.TENSOR:
        return _constant(attribute.t)
    if attribute.type == AttributeProto.SPARSE_TENSOR:
        sparse = attribute.sparse_tensor
        return Tensor(tuple(sparse.dims), dtype_name(sparse.values.data_type), constant=True)
    return {
        AttributeProto.FLOAT: Tensor((), "float32", constant=True),
        AttributeProto.INT: Tensor((), "int64", constant=True),
        AttributeProto.STRING: Tensor((), "object", constant=True),
        AttributeProto.FLOATS: Tensor((len(attribute.floats),), "float32", constant=True),
        AttributeProto.INTS: Tensor((len(attribute.ints),), "int64", constant=True),
        AttributeProto.STRINGS: Tensor((len(attribute.strings),), "object", constant=True),
    }.get(attribute.type)


def _attributes(node: NodeProto) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for attribute in sorted(node.attribute, key=lambda attribute: attribute.name):
        value = _attribute(attribute)
        if value is not None:
            found[attribute.name] = value
    return found


def _attribute(attribute: AttributeProto) -> Attribute | None:
    """The value of a scalar, a text or a short list of numbers; None for everything else."""
    if attribute.type == AttributeProto.INT:
        return int(attribute.i)
    if attribute.type == AttributeProto.FLOAT:
        return float(attribute.f)
    if attribute.type == AttributeProto.STRING:
        return attribute.s.decode(errors="replace")[:64]
    if attribute.type == AttributeProto.INTS and len(attribute.ints) <= LONGEST:
        return [int(value) for value in attribute.ints]
    if attribute.type == AttributeProto.FLOATS and len(attribute.floats) <= LONGEST:
        return [float(value) for value in attribute.floats]
    return None
