"""Collecting: what is chosen, and that nothing held is measured again."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from routecast.datasets.errors import UsageError
from routecast.datasets.history import History
from routecast.datasets.journal import Journal
from routecast.datasets.measurement import Purpose
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.datasets.zoo import Network
from routecast.tuner.collection import CollectConfig, collect
from routecast.tuner.designs import plan
from routecast.tuner.measure.timing import TimingConfig

QUICK = TimingConfig(block_ms=1, min_blocks=4, max_blocks=6, seconds=0.2)

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


def gpu_like() -> RouteSpace:
    """A hundred compiler knobs, and few of everything else, as on TensorRT."""
    return RouteSpace(
        (
            Knob("precision.policy", ("fp32", "fp16", "bf16"), "fp32"),
            Knob("precision.keep", ("none", "norm"), "none", requires={"precision.policy": ("fp16", "bf16")}),
            Knob("builder.tf32", ("on", "off"), "on", requires={"precision.policy": ("fp32",)}),
            Knob("form.gelu", ("keep", "raise"), "keep"),
            Knob("runtime.cuda_graph", ("on", "off"), "on"),
            *(Knob(f"compiler.knob{i}", ("on", "off"), "on") for i in range(100)),
        )
    )


def test_a_plan_is_not_swamped_by_the_largest_group():
    plans = [plan(gpu_like(), 20, seed) for seed in range(5)]
    assert all(Route({"precision.policy": "fp16"}) in routes for routes in plans)
    routes = [route for routes in plans for route in routes]
    assert Route() not in routes
    assert 60 <= sum(route.get("precision.policy") == "fp16" for route in routes) < 95
    singles = [route for route in routes if len({*route} - {"precision.policy"}) == 1]
    kinds = Counter(name.split(".")[0] for route in singles for name in route if name != "precision.policy")
    assert len(singles) > 25
    assert {"precision", "form", "runtime", "compiler"} <= set(kinds)
    assert kinds["compiler"] < 0.8 * len(singles)  # drawn uniformly, 19 of 20 would be
    assert all(gpu_like().canonical(route) == route for route in routes)


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
    raise ValueError("an exporter's own kind of error")


TINY = Network("tiny", "toy", "torch", make, {}, {})
BROKEN = Network("broken", "toy", "torch", broken, {}, {})


@pytest.mark.parametrize("kind", [History, Journal])
def test_a_second_collection_adds_only_what_is_missing(kind, tmp_path):
    path = tmp_path / ("h.db" if kind is History else "h.jsonl")
    with kind(path) as store:
        first = collect([TINY, BROKEN], store, CollectConfig(per_network=2, timing=QUICK))
        assert first.measured == 3  # the control and two routes
        assert first.skipped == {"broken": "an exporter's own kind of error"}
    with kind(path) as store:
        assert collect([TINY], store, CollectConfig(per_network=2, timing=QUICK)).measured == 0
        assert collect([TINY], store, CollectConfig(per_network=3, seed=1, timing=QUICK)).measured >= 1
        held = store.records().measurements
        known = store.records()
    routes = [item.route for item in held]
    assert len(routes) == len(set(routes))
    assert [item.purpose for item in held].count(Purpose.CONTROL) == 1
    with kind(path.with_name(f"other-{path.name}")) as store:
        summary = collect([TINY], store, CollectConfig(per_network=2, timing=QUICK), known=known)
        assert summary.measured == 0


def test_the_cost_models_favourites_are_measured_beside_the_random_routes(tmp_path):
    config = CollectConfig(per_network=1, favourites=2, timing=QUICK)
    with History(tmp_path / "h.db") as store:
        summary = collect([TINY], store, config)
        assert 3 <= summary.measured <= 4  # the control, two favourites, and a random route unless it is one of them
        routes = [item.route for item in store.measurements()]
        assert collect([TINY], store, config).measured == 0
    assert max(map(len, routes)) > 1
    with History(tmp_path / "other.db") as store:
        alone = collect([TINY], store, replace(config, per_network=0))
        assert alone.measured == 3


def test_favourites_need_a_cost_model(tmp_path, monkeypatch):
    monkeypatch.setattr("routecast.training.find_cost_model", lambda path: None)
    with (
        History(tmp_path / "h.db") as store,
        pytest.raises(UsageError, match="no cost model is at hand: make one with `routecast train`"),
    ):
        collect([TINY], store, CollectConfig(per_network=1, favourites=2, timing=QUICK))


def test_screens_are_measured_as_well(tmp_path):
    with History(tmp_path / "h.db") as store:
        collect([TINY], store, CollectConfig(per_network=0, screens=2, timing=QUICK))
        assert sum(len(item.route) > 3 for item in store.measurements()) == 2
