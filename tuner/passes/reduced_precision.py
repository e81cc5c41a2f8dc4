"""Sixteen-bit floating point, whole or mixed, written into the graph as casts.

Strongly typed builders (TensorRT 11 and later) take the number format of every operator from the graph, so a
precision policy is a rewriting of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from routecast.datasets.graph import Graph
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.passes.base import GraphPass, PassContext, PassFailed
from routecast.tuner.passes.conversion import convert_opset
from routecast.tuner.passes.exclusions import name_nodes
from routecast.tuner.passes.gemm import lower_gemm

POLICY = "precision.policy"
_KEEP = "precision.keep"
_POLICIES = ("fp16", "bf16")

KEPT_OPS: Mapping[str, tuple[str, ...]] = {
    "norm": (
        "LayerNormalization", "RMSNormalization", "GroupNormalization", "InstanceNormalization",
        "BatchNormalization", "ReduceMean", "Pow", "Sqrt", "Reciprocal",
    ),
    "softmax": ("Softmax", "LogSoftmax", "Exp", "ReduceMax", "ReduceSum"),
    "activation": ("Gelu", "Erf", "Tanh", "Sigmoid", "HardSigmoid", "HardSwish", "Softplus", "Mish", "Elu"),
    "matmul": ("MatMul", "Gemm"),
    "conv": ("Conv", "ConvTranspose"),
    "resize": ("Resize", "GridSample"),
}  # fmt: skip
"""Kinds of operators that a mixed policy can keep in fp32."""

_RISKY = ("norm", "softmax")
# Their fp16 forms are absent from ONNX or count integers that fp16 cannot hold.
_ALWAYS = ("Range", "CumSum", "NonMaxSuppression", "RandomNormalLike", "RandomUniformLike", "TopK", "OneHot")

_QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
_HALF_QUANTIZERS_OPSET = 19  # the first version where they take and give sixteen-bit floating point


class ReducedPrecision(GraphPass):
    """fp16 or bf16 by ONNX Runtime's float16 converter; inputs, outputs and chosen operators stay in fp32.

    bf16 is the converter's fp16 graph with every fp16 type replaced, and weights rounded from the fp32 ones.
    """

    name: ClassVar[str] = "reduced_precision"

    def space(self, graph: Graph) -> RouteSpace:
        """The policy, and what a mixed policy keeps in fp32, by what the graph holds."""
        if not any(tensor.dtype == "float32" for tensor in graph.tensors):
            return RouteSpace((), dict.fromkeys((POLICY, _KEEP), "the graph computes nothing in float32"))
        kinds = [kind for kind, ops in KEPT_OPS.items() if not graph.ops.isdisjoint(ops)]
        risky = ["risky"] if all(kind in kinds for kind in _RISKY) else []
        policy = Knob(
            POLICY, ("fp32", *_POLICIES), "fp32", "number format of weights and activations",
            stage="build", changes_numerics=True,
        )  # fmt: skip
        keep = Knob(
            _KEEP, ("none", *kinds, *risky), "none", "kind of operators that a mixed policy keeps in fp32",
            stage="build", changes_numerics=True, requires={POLICY: _POLICIES},
        )  # fmt: skip
        return RouteSpace((policy, keep))

    def wanted(self, route: Route) -> bool:
        """Whether the policy is fp16 or bf16."""
        return route.get(POLICY) in _POLICIES

    def apply(self, model: ModelProto, context: PassContext) -> ModelProto:
        """Converts a model as the route says."""
        if any(node.op_type in _QUANTIZERS for node in model.graph.node):
            model = convert_opset(model, _HALF_QUANTIZERS_OPSET)
        kept = kept_ops(context.route.get(_KEEP, "none"))
        if "Gemm" in kept:
            # TensorRT-RTX 1.6.1 gives wrong numbers for an fp32 Gemm at the end of some fp16 networks (vit, mixer,
            # convnext...), and right ones for the MatMul and Add that it is made of.
            lower_gemm(model)
        name_nodes(model)
        weights = {tensor.name: tensor for tensor in model.graph.initializer if tensor.data_type == TensorProto.FLOAT}
        brain = context.route[POLICY] == "bf16"
        if brain and _holds_half(model):
            raise PassFailed("the model holds fp16 tensors already, so a bf16 policy would change what they mean")
        originals = {name: _copy(tensor) for name, tensor in weights.items()} if brain else {}
        converted = _to_half(model, kept)
        if brain:
            _half_to_brain(converted.graph, originals)
        return converted


def kept_ops(keep: str) -> list[str]:
    """The operator types that a value of ``precision.keep`` keeps in fp32, those that must be among them."""
    kinds = _RISKY if keep == "risky" else () if keep == "none" else (keep,)
    return [*_ALWAYS, *(op for kind in kinds for op in KEPT_OPS[kind])]


def _to_half(model: ModelProto, kept: list[str]) -> ModelProto:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    converted: ModelProto = convert_float_to_float16(
        model, keep_io_types=True, op_block_list=kept, force_fp16_initializers=False
    )
    _drop_twins(converted.graph)
    # The converter appends its casts; ONNX wants a node after the nodes it reads from.
    _sort(converted.graph)
    del converted.graph.value_info[:]
    return converted


def _drop_twins(graph: GraphProto) -> None:
    """Keeps one of several casts of a tensor under one name: older converters (1.30) make one per reader."""
    made: set[str] = set()
    kept = []
    for node in graph.node:
        if node.op_type != "Cast" or node.output[0] not in made:
            kept.append(_node_copy(node))
        made.update(node.output)
    del graph.node[:]
    graph.node.extend(kept)


def _sort(graph: GraphProto) -> None:
    """Brings the nodes of a graph into topological order, keeping the order there is where it can."""
    produced_by = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    nodes, done, order = list(graph.node), set[int](), list[int]()
    for start in range(len(nodes)):
        stack = [start]
        while stack:
            index = stack[-1]
            needed = [
                producer
                for name in _reads(nodes[index])
                if (producer := produced_by.get(name)) is not None and producer not in done and producer != index
            ]
            if index not in done and needed:
                stack += needed
                continue
            stack.pop()
            if index not in done:
                done.add(index)
                order.append(index)
    ordered = [_node_copy(nodes[index]) for index in order]
    del graph.node[:]
    graph.node.extend(ordered)


def _reads(node: NodeProto) -> set[str]:
    """Names that a node reads, those that its subgraphs take from outside among them."""
    names = set(node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                names |= _reads(inner)
    return names


def _node_copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def _copy(tensor: TensorProto) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return numpy_helper.to_array(tensor).copy()


def _holds_half(model: ModelProto) -> bool:
    graph = model.graph
    types = {tensor.data_type for tensor in graph.initializer}
    types |= {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output, *graph.value_info)}
    types |= {attribute.i for node in graph.node if node.op_type == "Cast" for attribute in node.attribute}
    return TensorProto.FLOAT16 in types


def _half_to_brain(
    graph: GraphProto, originals: Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]
) -> None:
    """Replaces fp16 by bf16 everywhere in a graph and the graphs inside it."""
    for tensor in graph.initializer:
        _retype(tensor, originals.get(tensor.name))
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16:
            value.type.tensor_type.elem_type = TensorProto.BFLOAT16
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _retype(attribute.t, None)
            elif attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT16:
                attribute.i = TensorProto.BFLOAT16
            for inner in (attribute.g, *attribute.graphs):
                _half_to_brain(inner, originals)


def _retype(tensor: TensorProto, original: np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None) -> None:
    if tensor.data_type != TensorProto.FLOAT16:
        return
    import ml_dtypes

    values = original if original is not None else numpy_helper.to_array(tensor).astype(np.float32)
    brain = numpy_helper.from_array(values.astype(ml_dtypes.bfloat16), tensor.name)
    tensor.CopyFrom(brain)
