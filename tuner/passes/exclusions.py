"""Which operators quantisation leaves in floating point."""

from __future__ import annotations

from onnx import ModelProto, NodeProto

from routecast.tuner.patterns import WEIGHTED_OPS, GraphFacts

CONVOLUTIONS = ("Conv", "ConvTranspose")
PRODUCTS = ("MatMul", "Gemm")


def exclusion_values(facts: GraphFacts) -> tuple[str, ...]:
    """The exclusions that differ from each other on a graph.

    ``none``; ``first_last``: the first and last operator with weights; ``only_weighted``: all but Conv,
    ConvTranspose, MatMul and Gemm with weights; ``only_conv``, ``only_matmul``: all but these;
    ``no_depthwise``: grouped Convs.
    """
    values = ["none"]
    if len(facts.weighted()) > 2:
        values.append("first_last")
    if facts.graph.ops - set(WEIGHTED_OPS) - {"Constant"}:
        values.append("only_weighted")
    if facts.weighted(*CONVOLUTIONS) and facts.weighted(*PRODUCTS):
        values += ["only_conv", "only_matmul"]
    if any(_groups(node.attributes.get("group", 1)) > 1 for node in facts.weighted("Conv")):
        values.append("no_depthwise")
    return tuple(values)


def nodes_excluded(model: ModelProto, exclude: str) -> list[str]:
    """Names of the operators to leave in floating point.

    Args:
        model: what will be quantised; operators without a name are given one.
        exclude: one of ``exclusion_values``.
    """
    name_nodes(model)
    if exclude == "none":
        return []
    constants = {tensor.name for tensor in model.graph.initializer}
    constants |= {name for node in model.graph.node if node.op_type == "Constant" for name in node.output}
    weighted = [
        node
        for node in model.graph.node
        if node.op_type in WEIGHTED_OPS and len(node.input) > 1 and node.input[1] in constants
    ]
    if exclude == "first_last":
        return [node.name for node in (*weighted[:1], *weighted[-1:])]
    if exclude == "no_depthwise":
        return [node.name for node in weighted if node.op_type == "Conv" and _group(node) > 1]
    kept = {"only_weighted": WEIGHTED_OPS, "only_conv": CONVOLUTIONS, "only_matmul": PRODUCTS}[exclude]
    names = {node.name for node in weighted if node.op_type in kept}
    return [node.name for node in model.graph.node if node.name not in names]


def name_nodes(model: ModelProto) -> None:
    """Gives every operator without a name one, since exclusions go by name."""
    taken = {node.name for node in model.graph.node}
    for index, node in enumerate(model.graph.node):
        if not node.name:
            name = f"{node.op_type}_{index}"
            while name in taken:
                name += "_"
            taken.add(name)
            node.name = name


def _group(node: NodeProto) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)


def _groups(value: object) -> int:
    return value if isinstance(value, int) else 1
