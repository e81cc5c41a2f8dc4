"""Inputs to measure with: the user's own, or generated from a seed."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from routecast.datasets.errors import UsageError
from routecast.datasets.graph import Graph
from routecast.datasets.model import InputSpec, Model

InputSet = dict[str, npt.NDArray[Any]]
Ranges = Mapping[str, tuple[float, float]]

FLOAT_RANGE = (-1.0, 1.0)
INTEGER_RANGE = (0.0, 2.0)


def load_inputs(path: Path, model: Model) -> InputSet:
    """Reads one input set: a ``.npz`` with one array per input, or a ``.npy`` for a model of one input.

    Raises:
        UsageError: the file is missing or unreadable, or names, shapes or element types are not the model's.
    """
    try:
        content = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UsageError(f"no input file {path}") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path} is not a .npz or .npy file of plain arrays: {error}") from None
    if isinstance(content, np.ndarray):
        if len(model.inputs) != 1:
            raise UsageError(f"{path} holds one array, the model has {len(model.inputs)} inputs: give a .npz")
        arrays = {model.inputs[0].name: content}
    else:
        arrays = dict(content.items())
    return {spec.name: _checked(path, spec, arrays) for spec in model.inputs}


def _checked(path: Path, spec: InputSpec, arrays: InputSet) -> npt.NDArray[Any]:
    if spec.name not in arrays:
        raise UsageError(f"{path} has no array for input {spec.name}, only {', '.join(sorted(arrays))}")
    array = arrays[spec.name]
    if array.shape != spec.shape:
        raise UsageError(f"{path}: input {spec.name} must have shape {spec.shape}, got {array.shape}")
    if not np.can_cast(array.dtype, _numpy_dtype(spec.dtype), "same_kind"):
        raise UsageError(f"{path}: input {spec.name} must be {spec.dtype}, got {array.dtype}")
    return array.astype(_numpy_dtype(spec.dtype))


def generate_inputs(model: Model, seed: int, ranges: Ranges | None = None) -> InputSet:
    """Draws one input set, uniform in a range per input.

    Floats lie in [-1, 1) unless ``ranges`` says otherwise. Integers lie in [0, 2), or below the number of rows of
    the table that a Gather indexes with them.

    Raises:
        UsageError: ``ranges`` names an input that the model does not have, or is empty.
    """
    ranges = dict(ranges or {})
    names = [spec.name for spec in model.inputs]
    for name, (low, high) in ranges.items():
        if name not in names:
            raise UsageError(f"a range is given for {name}, which is not an input; the inputs are {', '.join(names)}")
        if not low < high:
            raise UsageError(f"the range of input {name} must satisfy low < high, got ({low}, {high})")
    rng = np.random.default_rng(seed)
    return {
        spec.name: _draw(spec, ranges.get(spec.name) or _default_range(model.graph, index, spec), rng)
        for index, spec in enumerate(model.inputs)
    }


def _default_range(graph: Graph, index: int, spec: InputSpec) -> tuple[float, float]:
    if _numpy_dtype(spec.dtype).kind == "f":
        return FLOAT_RANGE
    rows = _table_rows(graph, graph.inputs[index])
    return (0.0, float(rows)) if rows else INTEGER_RANGE


def _table_rows(graph: Graph, tensor: int) -> int:
    """Rows of the smallest constant table that is gathered with ``tensor`` or a cast of it, 0 when there is none."""
    rows: list[int] = []
    for node in graph.nodes:
        if tensor not in node.inputs:
            continue
        table = graph.tensors[node.inputs[0]]
        if node.op == "Gather" and node.inputs[1] == tensor and table.constant and table.shape:
            axis = node.attributes.get("axis", 0)
            rows.append(table.shape[axis if isinstance(axis, int) else 0])
        elif node.op in ("Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze") and node.inputs[0] == tensor:
            rows.append(_table_rows(graph, node.outputs[0]))
    return min((count for count in rows if count), default=0)


def _draw(spec: InputSpec, bounds: tuple[float, float], rng: np.random.Generator) -> npt.NDArray[Any]:
    dtype = _numpy_dtype(spec.dtype)
    if dtype.kind == "b":
        return rng.random(spec.shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(int(bounds[0]), max(int(bounds[1]), int(bounds[0]) + 1), spec.shape).astype(dtype)
    return rng.uniform(*bounds, spec.shape).astype(dtype)


def _numpy_dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        raise UsageError(f"inputs of type {name} cannot be generated or read here: cast them in the model") from None


def save_input_sets(
    model: Model, folder: Path, *, given: Sequence[Path], count: int, seed: int, ranges: Ranges | None = None
) -> tuple[Path, ...]:
    """Writes the input sets to measure with as ``inputs-0.npz``, ``inputs-1.npz``...

    Args:
        model: the model.
        folder: where to write.
        given: the user's files, one input set each; when empty, ``count`` sets are generated.
        count: how many sets to generate.
        seed: of the first generated set; the next ones count up.
        ranges: of the generated inputs.
    """
    sets = [load_inputs(path, model) for path in given] or [
        generate_inputs(model, seed + index, ranges) for index in range(count)
    ]
    paths = []
    for index, arrays in enumerate(sets):
        path = folder / f"inputs-{index}.npz"
        save_arrays(path, arrays)
        paths.append(path)
    return tuple(paths)


def save_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Writes named arrays as ``.npz``; names may be anything (``np.savez`` itself refuses ``file``)."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)


def load_arrays(path: Path) -> InputSet:
    """Reads what ``save_arrays`` wrote."""
    with np.load(path, allow_pickle=False) as content:
        return dict(content.items())
