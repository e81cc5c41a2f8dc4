"""Collecting: what is chosen, and that nothing held is measured again."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from routecast.datasets.errors import UsageError
from routecast.datasets.history import History
from routecast.datasets.journal import Journal
from routecast.datasets.measurement import Purpose
from routecast.datasets.route import Knob, RouteSpace
from routecast.datasets.zoo import Network
from routecast.tuner.collection import CollectConfig, collect, plan

SPACE = RouteSpace(tuple(Knob(f"group{i % 3}.knob{i}", ("a", "b", "c"), "a") for i in range(12)))


def test_a_plan_mixes_single_changes_with_random_routes_and_depends_on_its_seed_only():
    routes = plan(SPACE, 30, seed=1)
    assert len(set(routes)) == 30
    assert sum(len(route) == 1 for route in routes) >= 12
    assert max(map(len, routes)) > 2
    assert plan(SPACE, 30, seed=1) == routes
    assert plan(SPACE, 30, seed=2) != routes


def test_a_small_space_is_planned_whole():
    space = RouteSpace((Knob("a.a", ("x", "y"), "x"), Knob("b.b", ("x", "y"), "x")))
    assert sorted(map(str, plan(space, 50, seed=0))) == ["a.a=y", "a.a=y b.b=y", "b.b=y"]


def make(folder: Path) -> Path:
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((16, 16)).astype("f4"), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 16])],
        [weight],
    )
    path = folder / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def broken(folder: Path) -> Path:
    raise UsageError("this network cannot be made")


TINY = Network("tiny", "toy", "torch", make, {}, {})
BROKEN = Network("broken", "toy", "torch", broken, {}, {})


@pytest.mark.parametrize("kind", [History, Journal])
def test_a_second_collection_adds_only_what_is_missing(kind, tmp_path):
    path = tmp_path / ("h.db" if kind is History else "h.jsonl")
    with kind(path) as store:
        first = collect([TINY, BROKEN], store, CollectConfig(per_network=2))
        assert first.measured == 3  # the control and two routes
        assert first.skipped == {"broken": "this network cannot be made"}
    with kind(path) as store:
        assert collect([TINY], store, CollectConfig(per_network=2)).measured == 0
        assert collect([TINY], store, CollectConfig(per_network=3, seed=1)).measured >= 1
        held = store.records().measurements
    routes = [item.route for item in held]
    assert len(routes) == len(set(routes))
    assert [item.purpose for item in held].count(Purpose.CONTROL) == 1
