"""Quantisation for TensorRT: which formats a graph is offered, and that what comes out is valid and close."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

from routecast.datasets.errors import UsageError
from routecast.datasets.model import open_model
from routecast.datasets.route import Route
from routecast.datasets.zoo import network
from routecast.tuner.passes import modelopt
from routecast.tuner.passes.base import PassFailed
from routecast.tuner.passes.modelopt import modelopt_missing
from routecast.tuner.passes.pipeline import run_passes
from routecast.tuner.passes.quantization import Quantization
from routecast.tuner.passes.reduced_precision import ReducedPrecision

needs_modelopt = pytest.mark.skipif(bool(modelopt_missing()), reason=modelopt_missing() or "ModelOpt is here")
BODY = """
<ir_version: 8, opset_import: ["" : 17]>
network (float[2,4,8,8] x) => (float[2,10] y) {
    c = Conv(x, w)
    r = Relu(c)
    f = Flatten(r)
    y = Gemm<transB = 1>(f, v, b)
}
"""
SHAPES = {"w": (8, 4, 3, 3), "v": (10, 288), "b": (10,)}


def model_of(body: str = BODY, shapes: dict[str, tuple[int, ...]] | None = None) -> ModelProto:
    proto = onnx.parser.parse_model(body)
    rng = np.random.default_rng(0)
    for name, shape in (shapes or SHAPES).items():
        array = (0.2 * rng.normal(size=shape)).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto


@pytest.fixture
def conv_and_gemm(tmp_path: Path) -> Path:
    path = tmp_path / "network.onnx"
    onnx.save(model_of(), path)
    np.savez(tmp_path / "inputs.npz", x=np.random.default_rng(1).normal(size=(2, 4, 8, 8)).astype(np.float32))
    return path


def rewrite(source: Path, route: str, inputs: Path) -> tuple[ModelProto, float]:
    """The rewritten model, and the cosine distance of its outputs from the original's."""
    target = source.parent / "rewritten.onnx"
    run_passes(source, target, Route.parse(route), [Quantization(), ReducedPrecision()], [inputs])
    onnx.checker.check_model(target, full_check=True)
    with np.load(inputs) as arrays:
        fed = dict(arrays)
    before, after = (run(path, fed) for path in (source, target))
    distance = 1 - float(before @ after / (np.linalg.norm(before) * np.linalg.norm(after)))
    return onnx.load(target), distance


def run(path: Path, fed: dict[str, np.ndarray]) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    outputs = ort.InferenceSession(str(path), options).run(None, fed)
    return np.concatenate([output.astype(np.float64).ravel() for output in outputs])


def test_without_int8_convolutions_only_products_are_offered(conv_and_gemm, monkeypatch):
    monkeypatch.setattr("routecast.tuner.passes.quantization.modelopt_missing", lambda: "")
    graph = open_model(conv_and_gemm).graph
    assert Quantization().space(graph).by_name["precision.quantize"].values == ("off", "int8", "fp8")
    space = Quantization(int8_convolutions=False).space(graph)
    assert space.by_name["precision.quantize"].values == ("off", "int8_products", "fp8")
    assert space.by_name["precision.exclude"].requires == {"precision.quantize": ("fp8",)}
    assert "no INT8 convolutions" in space.left_out["precision.quantize=int8"]


def test_what_is_missing_or_refused_is_left_out_with_the_reason(conv_and_gemm, monkeypatch):
    graph = open_model(conv_and_gemm).graph
    monkeypatch.setattr(modelopt, "find_spec", lambda name: None)
    space = Quantization().space(graph)
    assert space.by_name["precision.quantize"].values == ("off", "int8")
    assert "pip install 'routecast[modelopt]'" in space.left_out["precision.quantize=fp8"]
    with pytest.raises(UsageError, match=r"takes one of off, int8, got 'fp8': quantisation by ModelOpt needs"):
        space.canonical(Route.parse("precision.quantize=fp8"))
    refused = Quantization(fp8_refused="the GPU is old").space(graph)
    assert refused.left_out["precision.quantize=fp8"] == "the GPU is old"


@pytest.mark.parametrize("policy", ["fp32", "fp16"])
def test_int8_is_valid_in_either_precision_and_close(conv_and_gemm, tmp_path, policy):
    found, distance = rewrite(
        conv_and_gemm, f"precision.policy={policy} precision.quantize=int8", tmp_path / "inputs.npz"
    )
    assert 0 < distance < 1e-2
    scales = {node.input[1] for node in found.graph.node if node.op_type == "QuantizeLinear"}
    kinds = {tensor.data_type for tensor in found.graph.initializer if tensor.name in scales}
    assert kinds == {TensorProto.FLOAT16 if policy == "fp16" else TensorProto.FLOAT}


def test_products_alone_leave_convolutions_as_they_are(conv_and_gemm, tmp_path):
    found, _ = rewrite(conv_and_gemm, "precision.quantize=int8_products", tmp_path / "inputs.npz")
    written = {name for node in found.graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    read = {node.op_type: set(node.input) & written for node in found.graph.node}
    assert read["Gemm"]
    assert not read["Conv"]


def test_nothing_to_quantise_is_a_failure(tmp_path):
    source = tmp_path / "relu.onnx"
    onnx.save(model_of('<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Relu(x) }', {}), source)  # fmt: skip # noqa: E501
    np.savez(tmp_path / "inputs.npz", x=np.ones(4, np.float32))
    with pytest.raises(PassFailed, match="nothing that pays to quantise"):
        rewrite(source, "precision.quantize=int8", tmp_path / "inputs.npz")


def test_an_error_of_modelopt_is_named_by_its_last_exception():
    text = "Traceback\n  File x\nImportError: No module named 'y'\nPlease install optional dependencies.\n"
    assert modelopt._last_error(text) == "ImportError: No module named 'y'"
    assert modelopt._last_error("") == ""


@needs_modelopt
def test_fp8_of_a_real_network_is_valid_and_close(tmp_path):
    chosen = network("textcnn_b8_t64")
    source = chosen.make(tmp_path)
    (name, bounds), *_ = chosen.ranges.items()
    shape = next(spec.shape for spec in open_model(source).inputs if spec.name == name)
    tokens = np.random.default_rng(0).integers(*map(int, bounds), shape).astype(np.int64)
    np.savez(tmp_path / "inputs.npz", **{name: tokens})
    found, distance = rewrite(source, "precision.quantize=fp8 precision.policy=fp16", tmp_path / "inputs.npz")
    kinds = {tensor.data_type for tensor in found.graph.initializer}
    assert {TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT16} <= kinds
    assert 0 < distance < 2e-2


@needs_modelopt
def test_modelopt_leaves_excluded_operators_alone(conv_and_gemm, tmp_path):
    route = "precision.quantize=int8 precision.quantizer=modelopt precision.exclude=only_conv"
    found, distance = rewrite(conv_and_gemm, route, tmp_path / "inputs.npz")
    written = {name for node in found.graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    read = {node.op_type: set(node.input) & written for node in found.graph.node}
    assert read["Conv"]
    assert not read["Gemm"]
    assert distance < 1e-2


@needs_modelopt
def test_modelopt_says_that_it_needs_a_batch_axis(tmp_path):
    body = """
    <ir_version: 8, opset_import: ["" : 17]>
    network (float[2,16] x, float s) => (float[2,8] y) { m = MatMul(x, w) y = Mul(m, s) }
    """.replace(") y", ")\n y")
    source = tmp_path / "scalar.onnx"
    onnx.save(model_of(body, {"w": (16, 8)}), source)
    np.savez(tmp_path / "inputs.npz", x=np.ones((2, 16), np.float32), s=np.float32(2))
    with pytest.raises(PassFailed, match="the input s has none"):
        rewrite(source, "precision.quantize=fp8", tmp_path / "inputs.npz")
