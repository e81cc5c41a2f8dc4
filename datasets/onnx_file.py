"""Reading ONNX files: tells apart every way in which one can be unusable, and guards external data."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from routecast.datasets.errors import UsageError

SMALL = 1024
"""Tensors with more elements than this are weights: their values never matter to shapes."""

PROTOBUF_LIMIT = 2**31 - 1
"""The largest message protobuf reads, in bytes."""


def read_proto(path: Path) -> ModelProto:
    """Reads an ONNX file without the data it holds outside.

    Raises:
        UsageError: the file is missing, no file, empty, not ONNX, truncated, or without operators
            or outputs.
    """
    proto = _decode(path, _content(path))
    if not proto.graph.node:
        raise UsageError(f"{path} holds no operators: its graph is empty; export the model again")
    if not proto.graph.output:
        raise UsageError(f"{path} has no outputs; export the model again")
    if not proto.opset_import:
        raise UsageError(f"{path} names no operator set; it is truncated or was not exported properly")
    return proto


def _content(path: Path) -> bytes:
    try:
        facts = path.stat()
        if stat.S_ISDIR(facts.st_mode):
            raise UsageError(f"{path} is a folder; give the path of the .onnx file in it")
        if not stat.S_ISREG(facts.st_mode):
            raise UsageError(f"{path} is not a regular file; give the path of an ONNX model")
        if facts.st_size > PROTOBUF_LIMIT:
            raise UsageError(f"{path} has {facts.st_size} bytes, but protobuf reads 2 GB; store its weights outside it")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file; give the path of an ONNX model") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _decode(path: Path, content: bytes) -> ModelProto:
    if not content:
        raise UsageError(f"{path} is empty; give an ONNX model")
    # A ModelProto starts with field 1, ir_version, in every file that exporters write.
    header = len(content) > 1 and content[0] == 0x08 and content[1] < 0x80
    proto = ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        if header:
            raise UsageError(
                f"{path} is truncated or damaged: it starts as an ONNX file and then breaks off"
            ) from error
        raise UsageError(f"{path} is not an ONNX file: its {len(content)} bytes cannot be parsed as one") from error
    if not proto.HasField("graph"):
        what = "is truncated: it has no graph" if header else "is not an ONNX file: no graph can be found in it"
        raise UsageError(f"{path} {what}")
    return proto


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs among a node's attributes: bodies of If, Loop, Scan and the like."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def all_nodes(proto: ModelProto) -> Iterator[NodeProto]:
    """Every node: of the graph, of its subgraphs at any depth and of the model's own functions."""
    stack = [*proto.graph.node]
    for function in proto.functions:
        stack.extend(function.node)
    while stack:
        node = stack.pop()
        yield node
        for graph in subgraphs(node):
            stack.extend(graph.node)


def all_tensors(proto: ModelProto) -> Iterator[TensorProto]:
    """Every stored tensor: initialisers and tensors among attributes, at any depth."""
    yield from proto.graph.initializer
    for node in all_nodes(proto):
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == AttributeProto.TENSORS:
                yield from attribute.tensors
        for graph in subgraphs(node):
            yield from graph.initializer


def check_external_data(proto: ModelProto, path: Path) -> None:
    """Checks that all external data lies in files inside the model's folder, and reads the small tensors.

    Raises:
        UsageError: a file is missing, too short, or outside the folder (by its path or through a link).
    """
    for tensor in all_tensors(proto):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        facts = {entry.key: entry.value for entry in tensor.external_data}
        place = _inside(path, tensor.name, facts.get("location", ""))
        offset, length = _span(path, tensor.name, facts)
        size = place.stat().st_size
        if offset + length > size:
            raise UsageError(
                f"{path}: tensor {tensor.name!r} needs {offset + length} bytes of {place.name}, "
                f"which has {size}; copy the whole file"
            )
        if _elements(tensor) <= SMALL and length <= 16 * SMALL:
            with place.open("rb") as file:
                file.seek(offset)
                tensor.raw_data = file.read(length)
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]


def _inside(path: Path, name: str, location: str) -> Path:
    folder = path.parent.resolve()
    if not location:
        raise UsageError(f"{path}: tensor {name!r} is stored outside the file, but its location is not given")
    place = (folder / location).resolve()
    if not place.is_relative_to(folder):
        raise UsageError(
            f"{path}: tensor {name!r} points to {location!r}, outside the model's folder, which is not "
            "allowed; put the data beside the model"
        )
    if not place.is_file():
        raise UsageError(
            f"{path}: external data {location!r} (tensor {name!r}) is missing from {folder}; put it beside the model"
        )
    return place


def _span(path: Path, name: str, facts: dict[str, str]) -> tuple[int, int]:
    try:
        offset, length = int(facts.get("offset", "0")), int(facts.get("length", "0"))
    except ValueError as error:
        raise UsageError(f"{path}: tensor {name!r} has an external offset or length that is no number") from error
    if offset < 0 or length < 0:
        raise UsageError(f"{path}: tensor {name!r} has a negative external offset or length: {offset}, {length}")
    return offset, length


def _elements(tensor: TensorProto) -> int:
    count = 1
    for size in tensor.dims:
        count *= size
    return count


def drop_weights(proto: ModelProto) -> None:
    """Forgets the values of large tensors and of those outside: shape inference would only copy them."""
    for tensor in all_tensors(proto):
        if _elements(tensor) > SMALL or tensor.data_location == TensorProto.EXTERNAL:
            for name in (
                "raw_data",
                "float_data",
                "int32_data",
                "int64_data",
                "double_data",
                "uint64_data",
                "string_data",
            ):
                tensor.ClearField(name)
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]


def domain_of(domain: str) -> str:
    """The domain with ONNX's own under one name, the empty one."""
    return "" if domain == "ai.onnx" else domain


def opsets(proto: ModelProto) -> dict[str, int]:
    """Version of each operator set the model imports, by domain."""
    return {domain_of(entry.domain): entry.version for entry in proto.opset_import}


def load_whole(path: Path) -> ModelProto:
    """Reads an ONNX file with all its data, external data included.

    Raises:
        UsageError: as ``read_proto`` and ``check_external_data``.
    """
    proto = read_proto(path)
    check_external_data(proto, path)
    onnx.load_external_data_for_model(proto, str(path.parent))
    return proto
