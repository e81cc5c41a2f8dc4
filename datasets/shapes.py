"""Fixing a model's input shapes, and what follows from them for every other tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto, TypeProto, ValueInfoProto, helper

from routecast.datasets.errors import UsageError
from routecast.datasets.onnx_file import all_nodes, domain_of, opsets
from routecast.datasets.shape_values import infer_with_values

Dimension = int | str | None
"""A size, the name of a size that is not fixed, or None for a size without a name."""


@dataclass(frozen=True)
class InputSpec:
    """An input at its fixed shape.

    Attributes:
        name: as in the file.
        shape: its dimensions.
        dtype: numpy's name of the element type.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


def dtype_name(element_type: int) -> str:
    """Numpy's name of an ONNX element type (or ml_dtypes', as ``bfloat16``), empty when undefined."""
    if element_type == TensorProto.UNDEFINED:
        return ""
    return str(helper.tensor_dtype_to_np_dtype(element_type).name)


def dimensions(value: TypeProto.Tensor) -> tuple[Dimension, ...] | None:
    """The declared dimensions, None when not even the rank is; sizes of 0 or less count as not fixed."""
    if not value.HasField("shape"):
        return None
    return tuple(_dimension(dimension) for dimension in value.shape.dim)


def _dimension(dimension: onnx.TensorShapeProto.Dimension) -> Dimension:
    if dimension.HasField("dim_value") and dimension.dim_value > 0:
        return int(dimension.dim_value)
    return dimension.dim_param or None


def real_inputs(proto: ModelProto) -> list[ValueInfoProto]:
    """The inputs a user feeds: before IR version 4, initialisers were listed among the inputs too."""
    stored = {tensor.name for tensor in proto.graph.initializer}
    stored.update(tensor.values.name for tensor in proto.graph.sparse_initializer)
    return [value for value in proto.graph.input if value.name not in stored]


def fix_inputs(proto: ModelProto, shapes: Mapping[str, Sequence[int]] | None, path: Path) -> tuple[InputSpec, ...]:
    """Writes fixed shapes into the model's inputs.

    A named size (``batch``) that one input's given shape fixes is fixed in all other inputs too. Declared
    shapes of intermediate values are dropped when an input changed, since they may hold the old names.

    Raises:
        UsageError: an input is no tensor, or dimensions are left open, or ``shapes`` names an unknown input,
            has a wrong rank, a size below 1, or contradicts a fixed dimension.
    """
    inputs = real_inputs(proto)
    given = {name: tuple(int(size) for size in shape) for name, shape in (shapes or {}).items()}
    _check_names(given, [value.name for value in inputs], path)
    declared = {value.name: _declared(value, path) for value in inputs}
    for name, shape in given.items():
        _check_shape(name, shape, declared[name], path)
    sizes = {
        symbol: size
        for name, shape in given.items()
        for symbol, size in zip(declared[name] or (), shape, strict=False)
        if isinstance(symbol, str)
    }
    return tuple(_fix(value, given.get(value.name), declared[value.name], sizes, path) for value in inputs)


def _check_names(given: Mapping[str, object], names: Sequence[str], path: Path) -> None:
    for name in given:
        if name not in names:
            raise UsageError(f"{path} has no input named {name!r}; its inputs are {', '.join(map(repr, names))}")


def _declared(value: ValueInfoProto, path: Path) -> tuple[Dimension, ...] | None:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        what = (kind or "untyped value").removesuffix("_type").replace("_", " ")
        raise UsageError(
            f"{path}: input {value.name!r} is a {what}; only tensors can be fed, export the model without it"
        )
    return dimensions(value.type.tensor_type)


def _check_shape(name: str, shape: tuple[int, ...], declared: tuple[Dimension, ...] | None, path: Path) -> None:
    if any(size < 1 for size in shape):
        raise UsageError(f"{path}: every size of a shape is at least 1, got {_text(shape)} for input {name!r}")
    if declared is None:
        return
    if len(shape) != len(declared):
        raise UsageError(
            f"{path}: input {name!r} has {len(declared)} dimensions ({_declaration(declared)}), "
            f"got {len(shape)} ({_text(shape)})"
        )
    for axis, (size, fixed) in enumerate(zip(shape, declared, strict=True)):
        if isinstance(fixed, int) and fixed != size:
            raise UsageError(
                f"{path}: axis {axis} of input {name!r} is fixed at {fixed} ({_declaration(declared)}), "
                f"got {size}; export the model with that axis dynamic to change it"
            )


def _fix(
    value: ValueInfoProto,
    given: tuple[int, ...] | None,
    declared: tuple[Dimension, ...] | None,
    sizes: Mapping[str, int],
    path: Path,
) -> InputSpec:
    resolved = given if given is not None else _resolve(declared, sizes)
    if resolved is None:
        raise UsageError(_open_message(value.name, declared, sizes, path))
    declare_shape(value, resolved)
    return InputSpec(value.name, resolved, dtype_name(value.type.tensor_type.elem_type))


def _resolve(declared: tuple[Dimension, ...] | None, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    if declared is None:
        return None
    found = [sizes.get(size) if isinstance(size, str) else size for size in declared]
    fixed = tuple(size for size in found if size is not None)
    return fixed if len(fixed) == len(found) else None


def _open_message(name: str, declared: tuple[Dimension, ...] | None, sizes: Mapping[str, int], path: Path) -> str:
    if declared is None:
        return f"{path}: input {name!r} has no declared shape; pass it, for example --shapes {name}:1x3x224x224"
    axes = [axis for axis, size in enumerate(declared) if size is None or (isinstance(size, str) and size not in sizes)]
    example = tuple(_example(axis, size, sizes, len(declared)) for axis, size in enumerate(declared))
    plural = "axis" if len(axes) == 1 else "axes"
    return (
        f"{path}: input {name!r} has dynamic {plural} {', '.join(map(str, axes))} in its shape "
        f"{_declaration(declared)}; pass fixed sizes, for example --shapes {name}:{_text(example)}"
    )


def _example(axis: int, size: Dimension, sizes: Mapping[str, int], rank: int) -> int:
    """A likely size: batch 1, 3 channels, images of 224, sequences of 128."""
    if isinstance(size, int):
        return size
    if size is not None and size in sizes:
        return sizes[size]
    return (1, 3, 224, 224)[axis] if rank == 4 else (1 if axis == 0 else 128)


def _text(shape: Sequence[Dimension]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _declaration(shape: Sequence[Dimension]) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


def forget_shapes(proto: ModelProto) -> None:
    """Drops declared shapes of intermediate values and outputs, which may not hold at fixed input shapes."""
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        if value.type.WhichOneof("value") == "tensor_type":
            value.type.tensor_type.ClearField("shape")


def declare_shape(value: ValueInfoProto, shape: tuple[int, ...]) -> None:
    """Declares the shape of a tensor."""
    tensor = value.type.tensor_type
    tensor.ClearField("shape")
    tensor.shape.SetInParent()
    for size in shape:
        tensor.shape.dim.add().dim_value = size


def infer(proto: ModelProto, path: Path, *, shapes_given: bool) -> ModelProto:
    """Runs ONNX's shape inference, and follows values of shape computations when a shape stays unknown.

    Raises:
        UsageError: the operators contradict each other at the shapes the user gave.
    """
    _import_domains(proto)
    try:
        found = onnx.shape_inference.infer_shapes(proto, strict_mode=shapes_given)
    except onnx.shape_inference.InferenceError as error:
        line, when = " ".join(str(error).split()), " at the shapes given" if shapes_given else ""
        raise UsageError(f"{path}: the operators do not fit together{when}: {line}") from error
    return found if _is_complete(found) else infer_with_values(proto)


def _import_domains(proto: ModelProto) -> None:
    """Imports the domains that are used without being imported, as ONNX Runtime's own tools write them."""
    imported = opsets(proto)
    for domain in sorted({domain_of(node.domain) for node in all_nodes(proto)} - set(imported)):
        proto.opset_import.add(domain=domain, version=1)


def _is_complete(proto: ModelProto) -> bool:
    """Whether every value of the main graph has a fixed shape."""
    known = {
        value.name
        for value in (*proto.graph.value_info, *proto.graph.output)
        if value.type.WhichOneof("value") == "tensor_type"
        and (shape := dimensions(value.type.tensor_type)) is not None
        and all(isinstance(size, int) for size in shape)
    }
    return all(name in known for node in proto.graph.node for name in node.output if name)
