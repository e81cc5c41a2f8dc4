"""Every pass on graph form, on real networks of the zoo: equal outputs within rounding, and another graph."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from routecast.datasets.model import Model, open_model
from routecast.datasets.route import Route
from routecast.datasets.zoo import network
from routecast.tuner.backends.tensorrt.backend import TensorRt
from routecast.tuner.measure.inputs import generate_inputs
from routecast.tuner.passes.pipeline import run_passes

# What each must be offered, so that a pass that finds nothing any more is noticed.
OFFERED = {
    "bert_w128_d4_b1_t64": {"form.attention=raise", "form.gelu=raise", "form.layernorm=lower", "form.opset=23"},
    "mobilenet3_b1_s192": {"form.hardswish=lower", "form.gemm=lower", "form.opset=20"},
    "convnext_w48_b4_s96": {"form.constants=fold", "form.gelu=raise", "form.layernorm=lower", "form.gemm=lower"},
    "onnx_shufflenet": {"form.batchnorm=fold", "form.gemm=lower", "form.opset=18"},
}
HALF = ("fp16", "fp16 precision.keep=risky", "fp16 precision.keep=matmul", "fp16 precision.keep=norm")


@pytest.fixture(scope="module", params=OFFERED)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    chosen = network(request.param)
    model = open_model(chosen.make(tmp_path_factory.mktemp("zoo")), dict(chosen.shapes) or None, name=chosen.name)
    inputs = generate_inputs(model, 0, chosen.ranges)
    return model, inputs, run(model.path, inputs)


def run(path: Path, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options).run(None, inputs)


def worst(found: list[np.ndarray], reference: list[np.ndarray]) -> float:
    """Greatest difference relative to the greatest value of the output."""
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(found, reference, strict=True))


def rewritten(model: Model, route: Route, folder: Path) -> Path:
    target = folder / "rewritten.onnx"
    assert run_passes(model.path, target, route, TensorRt()._passes) == target
    return target


def outline(path: Path) -> tuple[int, Counter[str]]:
    proto = onnx.load(path)
    return proto.opset_import[0].version, Counter(node.op_type for node in proto.graph.node)


def test_every_form_computes_the_same(subject, tmp_path):
    model, inputs, reference = subject
    space = TensorRt().space(model)
    forms = [
        (knob.name, value) for knob in space.knobs if knob.group in ("form", "pass") for value in knob.alternatives
    ]
    assert OFFERED[model.name] <= {f"{name}={value}" for name, value in forms}
    before = outline(model.path)
    for name, value in forms:
        target = rewritten(model, Route({name: value}), tmp_path)
        assert worst(run(target, inputs), reference) < 1e-4, f"{name}={value}"
        if name.startswith("form."):
            assert outline(target) != before, f"{name}={value} changed nothing"


def test_every_form_is_still_found_beside_a_simplifier(subject, tmp_path):
    model, inputs, reference = subject
    forms = [knob for knob in TensorRt().space(model).knobs if knob.group == "form"]
    for route in (Route({knob.name: value, "pass.onnxslim": "on"}) for knob in forms for value in knob.alternatives):
        assert worst(run(rewritten(model, route, tmp_path), inputs), reference) < 1e-4, str(route)


@pytest.mark.parametrize("policy", HALF)
def test_sixteen_bits_and_mixed_policies_only_round(subject, tmp_path, policy):
    model, inputs, reference = subject
    route = Route.parse(f"precision.policy={policy}")
    space = TensorRt().space(model)
    if route.get("precision.keep", "none") not in space.by_name["precision.keep"].values:
        pytest.skip(f"{model.name} has nothing to keep by {policy}")
    target = rewritten(model, route, tmp_path)
    assert 0 < worst(run(target, inputs), reference) < 2e-2
    if "keep=matmul" in policy:
        assert "Gemm" not in outline(target)[1], "an fp32 Gemm in an fp16 network is miscompiled"


def test_products_are_merged_before_a_simplifier_makes_others_of_them(tmp_path):
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> network (float[8,16] x) => (float[8,16] q, float[8,16] k)
        { a = MatMul(x, wq) q = Add(a, bq) b = MatMul(x, wk) k = Add(b, bk) }"""
    )
    draw = np.random.default_rng(0).standard_normal
    for name, shape in {"wq": (16, 16), "wk": (16, 16), "bq": (16,), "bk": (16,)}.items():
        proto.graph.initializer.append(numpy_helper.from_array(draw(shape, np.float32), name))
    onnx.save(proto, tmp_path / "network.onnx")
    model = open_model(tmp_path / "network.onnx")
    target = rewritten(model, Route.parse("form.merge_projections=on pass.onnxslim=on"), tmp_path)
    assert outline(target)[1]["Split"] == 1
    inputs = generate_inputs(model, 0)
    assert worst(run(target, inputs), run(model.path, inputs)) < 1e-5
