"""Following the values of shape computations (Shape, Gather...) where ONNX's shape inference stops."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper, shape_inference

from routecast.datasets.onnx_file import SMALL, domain_of, opsets, subgraphs

Value = npt.NDArray[np.generic]

ROUNDS = 64
"""At most this many turns of inference and evaluation, one for each shape that another one needs."""

FOLLOWED = frozenset({
    "Abs", "Add", "And", "Cast", "Ceil", "Clip", "Concat", "ConstantOfShape", "Div", "Equal", "Expand",
    "Flatten", "Floor", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max",
    "Min", "Mod", "Mul", "Neg", "NonZero", "Not", "Or", "Pow", "Range", "ReduceMax", "ReduceMin",
    "ReduceProd", "ReduceSum", "Reshape", "Round", "ScatterND", "Shape", "Size", "Slice", "Split", "Sqrt",
    "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze", "Where",
})  # fmt: skip
"""Operators that shape computations are made of."""

DATA_DEPENDENT = frozenset({"NonZero"})
"""Operators whose output size only their evaluation tells; it is bounded by the input's."""

SAME_SHAPE = frozenset({
    "Attention", "BiasGelu", "FastGelu", "Gelu", "GroupNorm", "GroupQueryAttention", "MultiHeadAttention",
    "QuickGelu", "RotaryEmbedding", "SimplifiedLayerNormalization", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
})  # fmt: skip
"""Operators of ONNX Runtime, unknown to ONNX, whose first output is shaped as their first input."""

Shapes = Mapping[str, tuple[int, ...]]


def infer_with_values(proto: ModelProto) -> ModelProto:
    """Infers shapes, evaluating small constant computations between turns until nothing more is learnt.

    Returns:
        The model with shapes on its values; its operators are the same as before.
    """
    known: dict[str, Value] = {}
    originals: dict[int, NodeProto] = {}
    for index, node in enumerate(proto.graph.node):
        if node.domain == "com.microsoft" and node.op_type in SAME_SHAPE:
            _replace(node, helper.make_node("Identity", node.input[:1], node.output[:1]), index, originals)
    found = proto
    for _ in range(ROUNDS):
        found = shape_inference.infer_shapes(found, data_prop=True)
        learnt = _evaluate(found, known)
        if not learnt:
            break
        for index, value in learnt.items():
            node = found.graph.node[index]
            constant = helper.make_node("Constant", [], node.output[:1], value=numpy_helper.from_array(value))
            _replace(node, constant, index, originals)
    for index, node in originals.items():
        found.graph.node[index].CopyFrom(node)
    return found


def _replace(node: NodeProto, by: NodeProto, index: int, originals: dict[int, NodeProto]) -> None:
    """Puts an operator in another's place while shapes are inferred, and keeps the original."""
    if index not in originals:
        originals[index] = NodeProto()
        originals[index].CopyFrom(node)
    node.CopyFrom(by)


def _evaluate(proto: ModelProto, known: dict[str, Value]) -> dict[int, Value]:
    """Evaluates every operator whose inputs are known and small; results by the index of their node."""
    shapes = _static_shapes((*proto.graph.input, *proto.graph.value_info, *proto.graph.output))
    if not known:
        known.update({t.name: numpy_helper.to_array(t) for t in proto.graph.initializer if math.prod(t.dims) <= SMALL})
    shapes = {**shapes, **{tensor.name: tuple(tensor.dims) for tensor in proto.graph.initializer}}
    versions = opsets(proto)
    learnt: dict[int, Value] = {}
    for index, node in enumerate(proto.graph.node):
        if domain_of(node.domain) or len(node.output) != 1 or node.output[0] in known:
            continue
        value = _result(node, known, shapes, versions)
        if value is None:
            continue
        known[node.output[0]] = value
        if node.op_type != "Constant":
            learnt[index] = value
    return learnt


def _result(node: NodeProto, known: Mapping[str, Value], shapes: Shapes, versions: Mapping[str, int]) -> Value | None:
    if node.op_type == "Constant":
        return _run(node, {}, versions) if _is_small_constant(node) else None
    if node.op_type not in FOLLOWED or any(True for _ in subgraphs(node)):
        return None
    names = [name for name in node.input if name]
    if node.op_type in {"Shape", "Size"} and names[0] in shapes:
        return _run(node, {names[0]: np.broadcast_to(np.int8(0), shapes[names[0]])}, versions)
    if not all(name in known for name in names):
        return None
    output = shapes.get(node.output[0])
    small = node.op_type in DATA_DEPENDENT if output is None else math.prod(output) <= SMALL
    return _run(node, {name: known[name] for name in names}, versions) if small else None


def _run(node: NodeProto, inputs: Mapping[str, Value], versions: Mapping[str, int]) -> Value | None:
    """Evaluates one operator with ONNX's reference implementation; None when it cannot."""
    from onnx.reference import ReferenceEvaluator

    imports = [helper.make_opsetid("", versions.get("", 1))]
    function = helper.make_function("routecast", "step", list(inputs), list(node.output), [node], imports)
    try:
        result = ReferenceEvaluator(function).run(list(node.output), dict(inputs), attributes={})
    except Exception:  # the reference may lack this type or version; the shape then stays unknown
        return None
    value: Value = np.asarray(next(iter(result)))
    return value if value.size <= SMALL and value.dtype != np.object_ else None


def _is_small_constant(node: NodeProto) -> bool:
    return all(not attribute.HasField("t") or math.prod(attribute.t.dims) <= SMALL for attribute in node.attribute)


def _static_shapes(values: Iterable[ValueInfoProto]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for value in values:
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(size.HasField("dim_value") for size in tensor.shape.dim):
            found[value.name] = tuple(size.dim_value for size in tensor.shape.dim)
    return found
