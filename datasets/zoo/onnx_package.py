"""The real image classifiers in the test data of the onnx package, given usable weights.

The package ships nine well-known classifiers whose weights are all ``ConstantOfShape`` of 0.02, so that each
output is the same number. Here such constants become seeded random weights of sane scale, which makes
them real architectures with random weights: He-scaled convolutions, batch normalisation statistics
measured on a random image, and everything that is computed from constants alone folded away.
"""

from __future__ import annotations

import importlib.util
import math
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from routecast.datasets.zoo.entry import Network

if TYPE_CHECKING:
    import onnx

Array = NDArray[np.float32]

_OPSET = 17
_IR_VERSION = 8
_RANGE = (-1.0, 1.0)
# file in the package -> (family, input)
_FILES = {
    "bvlc_alexnet": ("alexnet", "data_0"),
    "densenet121": ("densenet", "data_0"),
    "inception_v1": ("inception", "data_0"),
    "inception_v2": ("inception", "data_0"),
    "resnet50": ("resnet", "gpu_0/data_0"),
    "shufflenet": ("shufflenet", "gpu_0/data_0"),
    "squeezenet": ("squeezenet", "data_0"),
    "vgg19": ("vgg", "data_0"),
    "zfnet512": ("alexnet", "gpu_0/data_0"),
}


def networks() -> tuple[Network, ...]:
    """Returns the classifiers that the installed onnx package has."""
    found = ((name, _packaged(name), *rest) for name, rest in _FILES.items())
    return tuple(
        Network(
            name=f"onnx_{name}",
            family=family,
            source="onnx",
            make=partial(_make, name, path),
            ranges={data: _RANGE},
        )
        for name, path, family, data in found
        if path is not None
    )


def _packaged(name: str) -> Path | None:
    """Returns the file of the onnx package, looked up without importing it."""
    spec = importlib.util.find_spec("onnx")
    for root in (spec and spec.submodule_search_locations) or ():
        path = Path(root, "backend", "test", "data", "light", f"light_{name}.onnx")
        if path.is_file():
            return path
    return None


def _make(name: str, source: Path, folder: Path) -> Path:
    """Writes the network with random weights into ``folder``."""
    import onnx
    from onnx import version_converter

    model = version_converter.convert_version(onnx.load(source), _OPSET)
    model.ir_version = _IR_VERSION
    constants = _fold_constants(model)
    _randomise(model, constants, np.random.default_rng(zlib.crc32(name.encode())))
    _set_initializers(model, constants)
    _measure_statistics(model)
    path = folder / f"onnx_{name}.onnx"
    onnx.save(model, path)
    return path


def _fold_constants(model: onnx.ModelProto) -> dict[str, Array]:
    """Takes every node that depends on constants alone out of the graph; returns all constants."""
    from onnx import numpy_helper

    constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    folds: dict[str, Callable[..., Array]] = {
        "ConstantOfShape": lambda shape: np.zeros(shape, np.float32),
        "Reshape": lambda data, shape: data.reshape(shape),
        "Unsqueeze": lambda data, axes: np.expand_dims(data, tuple(axes)),
    }
    kept = []
    for node in model.graph.node:
        if node.op_type == "Constant":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        elif node.op_type in folds and all(name in constants for name in node.input):
            operands = [constants[name] for name in node.input]
            constants[node.output[0]] = folds[node.op_type](*operands)
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return constants


def _randomise(model: onnx.ModelProto, constants: dict[str, Array], rng: np.random.Generator) -> None:
    """Draws each weight at the scale that its use calls for."""
    for node in model.graph.node:
        names = [name for name in node.input if name in constants and constants[name].dtype == np.float32]
        for name in names:
            shape = constants[name].shape
            if node.op_type in ("Conv", "Gemm") and name == node.input[1]:
                # Gemm weights too are (outputs, inputs) here, so fan-in is all but the first axis.
                drawn = rng.normal(0.0, math.sqrt(2.0 / math.prod(shape[1:])), shape)
            elif _is_scale(node, name):
                drawn = rng.uniform(0.7, 1.3, shape)
            else:
                drawn = rng.normal(0.0, 0.1, shape)
            constants[name] = drawn.astype(np.float32)


def _is_scale(node: onnx.NodeProto, name: str) -> bool:
    """Whether ``name`` multiplies: the factor of a Mul, or scale or variance of a batch normalisation."""
    if node.op_type == "BatchNormalization":
        return name in (node.input[1], node.input[4])
    return bool(node.op_type == "Mul")


def _set_initializers(model: onnx.ModelProto, constants: dict[str, Array]) -> None:
    """Stores the constants in use as initializers only: as inputs too they would not count as constant."""
    from onnx import numpy_helper

    used = {name for node in model.graph.node for name in node.input}
    inputs = [each for each in model.graph.input if each.name not in constants]
    del model.graph.input[:], model.graph.initializer[:], model.graph.value_info[:]
    model.graph.input.extend(inputs)
    model.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in constants.items() if name in used
    )


def _measure_statistics(model: onnx.ModelProto) -> None:
    """Sets the statistics of batch normalisation to those of a random image, as training would.

    One run in training mode gives them all; without this, deep residual sums grow out of hand.
    """
    import onnx
    import onnxruntime
    from onnx import numpy_helper

    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    statistics: dict[str, str] = {}  # output of the probe -> initializer that it replaces
    for node in probe.graph.node:
        if node.op_type == "BatchNormalization":
            del node.attribute[:]
            node.attribute.append(onnx.helper.make_attribute("training_mode", 1))
            node.attribute.append(onnx.helper.make_attribute("momentum", 0.0))
            for name in node.input[3:5]:
                node.output.append(f"{name}/measured")
                statistics[node.output[-1]] = name
    if not statistics:
        return
    probe.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in statistics
    )
    session = onnxruntime.InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
    (data,) = session.get_inputs()
    image = np.random.default_rng(0).uniform(*_RANGE, data.shape).astype(np.float32)
    measured = dict(zip(statistics.values(), session.run(list(statistics), {data.name: image}), strict=True))
    for initializer in model.graph.initializer:
        if initializer.name in measured:
            initializer.CopyFrom(numpy_helper.from_array(measured[initializer.name], initializer.name))
