"""Tests of opening and writing whole models."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from routecast.datasets import model as model_module
from routecast.datasets.errors import UsageError
from routecast.datasets.model import Model, open_model, write_static

Save = Callable[..., Path]
Refused = Callable[..., None]
ShapesOf = Callable[[Model], dict[str, tuple[int, ...] | None]]
REAL = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def test_a_small_network(perceptron: Path, shapes_of: ShapesOf) -> None:
    model = open_model(perceptron, {"x": (8, 64)}, family="mlp")
    graph = model.graph
    assert (model.name, model.family) == ("net", "mlp")
    assert [(spec.name, spec.shape, spec.dtype) for spec in model.inputs] == [("x", (8, 64), "float32")]
    assert model.outputs == ("y",)
    assert [node.op for node in graph.nodes] == ["MatMul", "Relu", "MatMul"]
    assert shapes_of(model) == {"first": (8, 32), "relu": (8, 32), "second": (8, 10)}
    assert [node.flops for node in graph.nodes] == [2 * 8 * 64 * 32, 8 * 32, 2 * 8 * 32 * 10]
    assert graph.nodes[0].bytes == 4 * (8 * 64 + 64 * 32 + 8 * 32)
    assert graph.weight_bytes == 4 * (64 * 32 + 32 * 10)
    assert graph.edges() == [(0, 1), (1, 2)]
    assert graph.opset == 18


def test_the_fingerprint_depends_on_shapes_but_not_on_weights_names_or_their_order(save: Save) -> None:
    def network(seed: int, prefix: str, *, reverse: bool) -> Path:
        rng = np.random.default_rng(seed)
        weights = {f"{prefix}w{i}": rng.normal(size=(4, 4)).astype(np.float32) for i in range(2)}
        nodes = [
            helper.make_node("MatMul", ["x", f"{prefix}w0"], [f"{prefix}h"]),
            helper.make_node("MatMul", [f"{prefix}h", f"{prefix}w1"], ["y"]),
        ]
        ordered = dict(reversed(weights.items())) if reverse else weights
        return save(nodes, {"x": ["n", 4]}, ["y"], ordered, name=f"{prefix}.onnx")

    one = open_model(network(0, "a", reverse=False), {"x": (2, 4)}).graph
    same = open_model(network(1, "b", reverse=True), {"x": (2, 4)}).graph
    other = open_model(network(0, "a", reverse=False), {"x": (3, 4)}).graph
    assert one.fingerprint == same.fingerprint
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize("path", sorted(REAL.glob("*.onnx")), ids=lambda path: path.stem)
def test_the_real_networks_of_the_onnx_package_open(path: Path) -> None:
    model = open_model(path)
    graph = model.graph
    assert [spec.shape for spec in model.inputs] == [(1, 3, 224, 224)]
    assert all(graph.tensors[index].shape is not None for index in graph.outputs)
    # A mask that Dropout may also return is the only value without a shape.
    unknown = [node.op for node in graph.nodes if graph.tensors[node.outputs[0]].shape is None]
    assert unknown == []
    assert graph.flops > 1e8


def test_published_operation_counts_are_met() -> None:
    """ResNet-50 has 4.1 billion multiply-accumulates, VGG-19 19.6 (He et al. 2016, table 1)."""
    assert open_model(REAL / "light_resnet50.onnx").graph.flops == pytest.approx(8.2e9, rel=0.03)
    assert open_model(REAL / "light_vgg19.onnx").graph.flops == pytest.approx(39.2e9, rel=0.03)


def run(path: Path, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": x})
    return np.asarray(result)


@pytest.mark.parametrize("limit", [model_module.INLINE_LIMIT, 100])
def test_the_static_model_computes_the_same(
    external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(model_module, "INLINE_LIMIT", limit)
    model = open_model(external, {"x": (3, 64)})
    for _ in range(2):  # the second time over the first's files
        target = write_static(model, tmp_path / "made" / "here")
    assert target == tmp_path / "made" / "here" / "model.onnx"
    assert (target.parent / "model.onnx.data").exists() == (limit == 100)
    proto = onnx.load(target)
    onnx.checker.check_model(proto, full_check=True)
    again = open_model(target)
    assert again.graph == model.graph
    assert again.inputs == model.inputs
    x = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)
    np.testing.assert_array_equal(run(target, x), run(external, x))


def test_writing_what_has_changed_meanwhile_fails(perceptron: Path, tmp_path: Path) -> None:
    model = open_model(perceptron, {"x": (3, 64)})
    perceptron.unlink()
    with pytest.raises(UsageError, match="no such file"):
        write_static(model, tmp_path / "out")


def test_a_network_of_600_operators_and_50_megabytes_opens_fast(save: Save) -> None:
    rng = np.random.default_rng(0)
    width, layers = 200, 300
    weights = {f"w{i}": rng.normal(size=(width, width)).astype(np.float32) for i in range(layers)}
    nodes = []
    for index in range(layers):
        nodes.append(helper.make_node("MatMul", [f"r{index}", f"w{index}"], [f"h{index}"]))
        nodes.append(helper.make_node("Relu", [f"h{index}"], [f"r{index + 1}"]))
    path = save(nodes, {"r0": ["n", width]}, [f"r{layers}"], weights)
    assert path.stat().st_size > 45e6
    started = time.process_time()
    graph = open_model(path, {"r0": (4, width)}).graph
    assert time.process_time() - started < 2
    assert graph.flops == layers * (2 * 4 * width * width + 4 * width)
    assert math.isclose(graph.weight_bytes, 4 * layers * width * width)


def test_messages_name_the_file(perceptron: Path, refused: Refused) -> None:
    refused(perceptron, re.escape(str(perceptron)))
