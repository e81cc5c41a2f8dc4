"""Constant operators as initialisers, the only form in which some libraries see weights."""

from __future__ import annotations

from onnx import AttributeProto, ModelProto


def lift_constants(model: ModelProto) -> None:
    """Turns the Constant operators of the main graph that hold a tensor into initialisers, in place."""
    outputs = {value.name for value in model.graph.output}
    lifted = []
    for node in model.graph.node:
        if node.op_type != "Constant" or node.output[0] in outputs:
            continue
        for attribute in node.attribute:
            if attribute.name == "value" and attribute.type == AttributeProto.TENSOR:
                tensor = model.graph.initializer.add()
                tensor.CopyFrom(attribute.t)
                tensor.name = node.output[0]
                lifted.append(node)
    for node in lifted:
        model.graph.node.remove(node)
