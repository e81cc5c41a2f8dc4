from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import ModelProto, numpy_helper

from routecast.datasets.model import open_model, write_static
from routecast.datasets.route import Route, RouteSpace
from routecast.datasets.zoo import network
from routecast.tuner.passes.base import GraphPass, PassFailed
from routecast.tuner.passes.constants import lift_constants
from routecast.tuner.passes.exclusions import exclusion_values, name_nodes, nodes_excluded
from routecast.tuner.passes.opset import at_least_opset
from routecast.tuner.passes.pipeline import run_passes
from routecast.tuner.passes.registry import get_passes, pass_names
from routecast.tuner.patterns import GraphFacts


@pytest.fixture
def model() -> ModelProto:
    """Conv, depthwise Conv, Flatten, MatMul with a Constant operator's weights, Add."""
    proto = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        network (float[1,4,6,6] x) => (float[1,3] y) {
            c = Conv(x, w)
            d = Conv<group = 4>(c, v)
            f = Flatten(d)
            m = Constant<value = float[4,3] {1,2,3,4,5,6,7,8,9,10,11,12}>()
            p = MatMul(f, m)
            y = Add(p, p)
        }
        """
    )
    rng = np.random.default_rng(0)
    for name, shape in {"w": (4, 4, 3, 3), "v": (4, 1, 4, 4)}.items():
        array = rng.normal(size=shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto


def source(model, folder):
    path = folder / "source.onnx"
    onnx.save(model, path)
    return path


class Renames(GraphPass):
    """Breaks the interface."""

    name = "renames"

    def space(self, graph):
        return RouteSpace(())

    def wanted(self, route):
        return route.get("pass.renames") == "on"

    def apply(self, model, context):
        model.graph.node[-1].output[0] = model.graph.output[0].name = "renamed"
        return model


class Raises(Renames):
    name = "raises"

    def apply(self, model, context):
        raise KeyError("who knows")


def test_no_pass_wanted_writes_nothing(model, tmp_path):
    target = tmp_path / "built.onnx"
    assert run_passes(source(model, tmp_path), target, Route(), get_passes(pass_names())) is None
    assert not target.exists()


def test_a_pass_that_renames_outputs_is_refused(model, tmp_path):
    with pytest.raises(PassFailed, match="pass renames: .*interface"):
        run_passes(source(model, tmp_path), tmp_path / "b.onnx", Route({"pass.renames": "on"}), [Renames()])


def test_a_pass_that_raises_is_named(model, tmp_path):
    with pytest.raises(PassFailed, match="pass raises: KeyError"):
        run_passes(source(model, tmp_path), tmp_path / "b.onnx", Route({"pass.renames": "on"}), [Raises()])


def test_structure_comes_before_precision():
    names = pass_names()
    structural = ("onnxslim", "onnxscript", "transformers")
    assert names.index("precision") > max(names.index(name) for name in structural)
    assert [item.name for item in get_passes(("precision", "onnxslim"))] == ["onnxslim", "precision"]


def test_folding_shortens_the_graph(model, tmp_path):
    node = onnx.helper.make_node("Identity", ["y"], ["z"])
    model.graph.node.append(node)
    model.graph.output[0].name = "z"
    for route in (Route({"pass.onnxslim": "on"}), Route({"pass.onnxscript": "rewrite"})):
        target = tmp_path / f"{next(iter(route))}.onnx"
        assert run_passes(source(model, tmp_path), target, route, get_passes(pass_names())) == target
        built = onnx.load(target)
        assert [value.name for value in built.graph.output] == ["z"]
        assert "Identity" not in {item.op_type for item in built.graph.node}


def test_exclusions_follow_the_graph(model, tmp_path):
    values = exclusion_values(GraphFacts(open_model(source(model, tmp_path)).graph))
    assert values == ("none", "first_last", "only_weighted", "only_conv", "only_matmul", "no_depthwise")


@pytest.mark.parametrize(
    ("exclude", "expected"),
    [
        ("none", set()),
        ("first_last", {0, 4}),
        ("only_weighted", {2, 3, 5}),
        ("only_conv", {2, 3, 4, 5}),
        ("only_matmul", {0, 1, 2, 3, 5}),
        ("no_depthwise", {1}),
    ],
)
def test_excluded_nodes(model, exclude, expected):
    names = nodes_excluded(model, exclude)
    assert {index for index, node in enumerate(model.graph.node) if node.name in names} == expected


def test_naming_keeps_names_and_makes_distinct_ones(model):
    model.graph.node[0].name = "Conv_1"
    name_nodes(model)
    names = [node.name for node in model.graph.node]
    assert names[0] == "Conv_1"
    assert len(set(names)) == len(names)
    assert all(names)


@pytest.mark.parametrize("policy", ["dynamic_int8", "static_int8"])
@pytest.mark.parametrize("exclude", ["none", "only_conv", "only_matmul"])
def test_excluded_operators_stay_in_floating_point(model, tmp_path, policy, exclude):
    np.savez(tmp_path / "set.npz", x=np.random.default_rng(1).normal(size=(1, 4, 6, 6)).astype(np.float32))
    route = Route({"precision.policy": policy, "precision.exclude": exclude})
    target = tmp_path / "built.onnx"
    run_passes(source(model, tmp_path), target, route, get_passes(pass_names()), (tmp_path / "set.npz",))
    built = onnx.load(target)
    eight_bit = {item.name for item in built.graph.initializer if item.data_type in (2, 3) and item.dims}
    quantised = {name[0] for name in eight_bit}
    assert ("w" in quantised) == (exclude != "only_matmul")
    assert ("m" in quantised) == (exclude != "only_conv")


def test_constants_become_initialisers(model):
    lift_constants(model)
    assert "Constant" not in {node.op_type for node in model.graph.node}
    onnx.checker.check_model(model)
    assert onnx.numpy_helper.to_array(model.graph.initializer[-1])[0].tolist() == [1, 2, 3]


def test_opset_is_only_raised(model):
    assert at_least_opset(model, 13) is model
    assert at_least_opset(model, 18).opset_import[0].version == 18


def test_what_the_transformer_optimiser_fused_can_be_quantised(tmp_path):
    """Its layer normalisations are unknown to ONNX's type inference in the opset of this network."""
    recogniser = network("ocr_recogniser_b1_w160")
    opened = open_model(recogniser.make(tmp_path), recogniser.shapes)
    route = Route.parse("pass.transformers=vit precision.policy=dynamic_int8")
    target = tmp_path / "target.onnx"
    run_passes(write_static(opened, tmp_path), target, route, get_passes(pass_names()))
    ops = {node.op_type for node in onnx.load(target).graph.node}
    assert {"SkipLayerNormalization", "MatMulInteger"} <= ops
