"""Opening ONNX models: their graph at fixed input shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx.inliner import inline_local_functions

from routecast.datasets.graph import Graph
from routecast.datasets.onnx_checks import check_operators
from routecast.datasets.onnx_file import check_external_data, drop_weights, load_whole, read_proto
from routecast.datasets.onnx_graph import build_graph
from routecast.datasets.onnx_order import sort_operators
from routecast.datasets.shapes import InputSpec, declare_shape, fix_inputs, forget_shapes, infer

__all__ = ["InputSpec", "Model", "open_model", "write_static"]

INLINE_LIMIT = 1_500_000_000
"""Models with more bytes of weights than this are written with external data: protobuf stops at 2 GB."""


@dataclass(frozen=True)
class Model:
    """An ONNX network at fixed input shapes.

    Attributes:
        path: the file it was read from.
        name: for people; the file's name without its ending when nobody said.
        family: its architecture family, ``unknown`` when nobody said.
        graph: its operators and tensors at the fixed shapes.
        inputs: what is fed.
        outputs: names of what comes out.
    """

    path: Path
    name: str
    family: str
    graph: Graph
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]


def open_model(
    path: str | Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    name: str | None = None,
    family: str = "unknown",
) -> Model:
    """Reads an ONNX file, fixes its input shapes and infers all others.

    Weights are not kept in memory, and external data is checked but not read.

    Args:
        path: the .onnx file.
        shapes: input shapes by name; needed for inputs with dynamic axes, except axes whose names others fix.
        name: what to call it, the file's name by default.
        family: its architecture family.

    Raises:
        UsageError: the file is missing, not ONNX, truncated, empty, uses unknown operators, lacks external
            data or has it outside its folder; or the shapes are missing or do not fit.
    """
    path = Path(path)
    proto = read_proto(path)
    check_operators(proto, path)
    check_external_data(proto, path)
    drop_weights(proto)
    sort_operators(proto, path)
    declared = [value.SerializeToString() for value in proto.graph.input]
    inputs = fix_inputs(proto, shapes, path)
    if declared != [value.SerializeToString() for value in proto.graph.input]:
        forget_shapes(proto)
    if proto.functions:
        proto = inline_local_functions(proto)
    graph = build_graph(infer(proto, path, shapes_given=bool(shapes)), path)
    outputs = tuple(value.name for value in proto.graph.output)
    return Model(path, name or path.stem, family, graph, inputs, outputs)


def write_static(model: Model, folder: Path) -> Path:
    """Writes the model with its input shapes fixed, for a child process to load.

    Args:
        model: what to write.
        folder: where to; made when it does not exist.

    Returns:
        ``folder/model.onnx``; its weights are in ``model.onnx.data`` beside it when there are more than 1.5
        GB of them.

    Raises:
        UsageError: the model's file is no longer what was opened.
    """
    proto = load_whole(model.path)
    sort_operators(proto, model.path)
    fix_inputs(proto, {spec.name: spec.shape for spec in model.inputs}, model.path)
    del proto.graph.value_info[:]
    for value, index in zip(proto.graph.output, model.graph.outputs, strict=True):
        shape = model.graph.tensors[index].shape
        if shape is not None:
            declare_shape(value, shape)
    folder.mkdir(parents=True, exist_ok=True)
    target, weights = folder / "model.onnx", folder / "model.onnx.data"
    weights.unlink(missing_ok=True)
    external = model.graph.weight_bytes > INLINE_LIMIT
    onnx.save_model(proto, target, save_as_external_data=external, location=weights.name)
    return target
