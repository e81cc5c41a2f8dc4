from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from routecast.datasets.model import Model, open_model, write_static


@dataclass(frozen=True)
class Network:
    """A model on disk with input sets, as the measuring side hands it to a backend."""

    model: Model
    static: Path
    inputs: dict[str, np.ndarray]
    calibration: tuple[Path, ...]


def convolutional() -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, a residual branch, pooling and a Gemm."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(size=(16, 3, 3, 3)),
        "w2": rng.normal(size=(16, 16, 3, 3)) / 12,
        "scale": rng.uniform(0.5, 1.5, 16),
        "shift": rng.normal(size=16),
        "mean": rng.normal(size=16),
        "variance": rng.uniform(0.5, 1.5, 16),
        "wf": rng.normal(size=(16, 5)),
        "bf": rng.normal(size=5),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c1", "scale", "shift", "mean", "variance"], ["n1"], "norm1"),
        helper.make_node("Relu", ["n1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "r1"], ["a2"], "add2"),
        helper.make_node("Relu", ["a2"], ["r2"], "relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "wf", "bf"], ["y"], "fc"),
    ]
    return _model(nodes, weights, {"x": (1, 3, 12, 12)}, {"y": (1, 5)})


def attentive() -> onnx.ModelProto:
    """One attention head with a residual LayerNormalization and an erf Gelu."""
    rng = np.random.default_rng(1)
    weights = {name: rng.normal(size=(16, 16)) / 4 for name in ("wq", "wk", "wv", "w1")}
    weights |= {"b1": rng.normal(size=16), "scale": rng.uniform(0.5, 1.5, 16), "shift": rng.normal(size=16)}
    weights |= {"four": np.array(4.0), "root2": np.array(2**0.5), "one": np.array(1.0), "half": np.array(0.5)}
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q"], "query"),
        helper.make_node("MatMul", ["x", "wk"], ["k"], "key"),
        helper.make_node("MatMul", ["x", "wv"], ["v"], "value"),
        helper.make_node("Transpose", ["k"], ["kt"], "transpose", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["s"], "scores"),
        helper.make_node("Div", ["s", "four"], ["sd"], "scale_scores"),
        helper.make_node("Softmax", ["sd"], ["p"], "softmax", axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["o"], "mix"),
        helper.make_node("Add", ["o", "x"], ["r"], "residual"),
        helper.make_node("LayerNormalization", ["r", "scale", "shift"], ["n"], "norm"),
        helper.make_node("MatMul", ["n", "w1"], ["m"], "expand"),
        helper.make_node("Add", ["m", "b1"], ["h"], "bias"),
        helper.make_node("Div", ["h", "root2"], ["g1"], "gelu1"),
        helper.make_node("Erf", ["g1"], ["g2"], "gelu2"),
        helper.make_node("Add", ["g2", "one"], ["g3"], "gelu3"),
        helper.make_node("Mul", ["h", "g3"], ["g4"], "gelu4"),
        helper.make_node("Mul", ["g4", "half"], ["y"], "gelu5"),
    ]
    return _model(nodes, weights, {"x": (1, 8, 16)}, {"y": (1, 8, 16)})


def chain() -> onnx.ModelProto:
    """Relu and Neg: nothing to fuse, quantise or run in parallel."""
    nodes = [helper.make_node("Relu", ["x"], ["r"], "relu"), helper.make_node("Neg", ["r"], ["y"], "neg")]
    return _model(nodes, {}, {"x": (1, 4)}, {"y": (1, 4)})


def _model(nodes, weights, inputs, outputs) -> onnx.ModelProto:
    constants = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in weights.items()]
    values = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in named.items()]
        for named in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "network", *values, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def place(proto: onnx.ModelProto, folder: Path) -> Network:
    """Writes a model and two input sets."""
    folder.mkdir()
    onnx.save(proto, folder / "given.onnx")
    model = open_model(folder / "given.onnx")
    static = write_static(model, folder / "static")
    rng = np.random.default_rng(2)
    sets = [{spec.name: rng.normal(size=spec.shape).astype(spec.dtype) for spec in model.inputs} for _ in range(2)]
    paths = tuple(folder / f"inputs{index}.npz" for index in range(2))
    for path, arrays in zip(paths, sets, strict=True):
        np.savez(path, **arrays)
    return Network(model, static, sets[0], paths)


@pytest.fixture(scope="session")
def conv_network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return place(convolutional(), tmp_path_factory.mktemp("networks") / "conv")


@pytest.fixture(scope="session")
def attention_network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return place(attentive(), tmp_path_factory.mktemp("networks") / "attention")


@pytest.fixture(scope="session")
def chain_network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return place(chain(), tmp_path_factory.mktemp("networks") / "chain")
