from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from routecast.costmodel.baselines import (
    DefaultBaseline,
    Errors,
    PopularityBaseline,
    RandomBaseline,
    RooflineBaseline,
    baselines,
)
from routecast.costmodel.boosting import BoostingBaseline
from routecast.costmodel.features import roofline_ms
from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.graph import Graph, Node, Tensor
from routecast.datasets.measurement import LocalTime, Measurement, Purpose, Status
from routecast.datasets.records import Records
from routecast.datasets.route import Route

HOST = Environment("onnxruntime", "1", "cpu", numbers={"peak_gflops": 50.0, "bandwidth_gbs": 10.0})
KINDS = [DefaultBaseline, RandomBaseline, RooflineBaseline, PopularityBaseline, BoostingBaseline]
SETTINGS = [("threads", "1"), ("level", "basic"), ("level", "off"), ("precision", "int8"), ("arena", "off")]


def make_graph(op: str, length: int) -> Graph:
    nodes = tuple(Node(op, f"n{i}", (i,), (i + 1,), {}, 1e7, 1e5) for i in range(length))
    return Graph(nodes, (Tensor((1, 16, 16), "float32"),) * (length + 1), (0,), (length,), 17)


def truth(graph: Graph, route: Route) -> float:
    """INT8 helps matrix products and hurts convolutions: only a look at the graph can tell."""
    matmul = "MatMul" in graph.ops
    worth = {
        ("threads", "1"): 0.5,
        ("level", "basic"): 0.1,
        ("level", "off"): 0.3,
        ("precision", "int8"): -0.6 if matmul else 0.4,
        ("arena", "off"): 0.0,
    }
    return sum(worth[setting] for setting in route.items())


def make_records(models: int = 8, routes: int = 20) -> Records:
    rng = np.random.default_rng(0)
    records = Records(environments={HOST.identity: HOST})
    for index in range(models):
        op = ("MatMul", "Conv")[index % 2]
        graph = make_graph(op, 10 + 3 * index)
        records.graphs[graph.fingerprint] = graph
        default = 2.5 * float(roofline_ms(graph, HOST).sum())
        common = {"model": f"m{index}", "family": f"{op}-{index // 2 % 3}", "default_ms": default}
        profile = tuple(LocalTime(node.name, node.op, default / len(graph.nodes) / 2) for node in graph.nodes)
        records.measurements.append(
            Measurement(
                graph.fingerprint, Route(), HOST.identity, Status.OK, ratio=1.0, latency_ms=default,
                purpose=Purpose.CONTROL, local_profile=profile, **common,
            )
        )  # fmt: skip
        for _ in range(routes):
            picked = rng.permutation(len(SETTINGS))[: int(rng.integers(1, 4))]
            route = Route(dict(SETTINGS[place] for place in picked))
            ratio = math.exp(truth(graph, route) + 0.01 * rng.standard_normal())
            fails = route.get("level") == "off"
            status = Status.LOAD_FAILED if fails else Status.OK
            records.measurements.append(
                Measurement(
                    graph.fingerprint, route, HOST.identity, status, ratio=None if fails else ratio,
                    build_seconds=2.0, **common,
                )
            )  # fmt: skip
    return records


@pytest.fixture(scope="module")
def records() -> Records:
    return make_records()


BOTH = Route([("threads", "1"), ("precision", "int8")])
ROUTES = [Route(), *(Route([setting]) for setting in SETTINGS), BOTH]


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_have_their_shapes_and_bounds(kind, records):
    graph = make_graph("MatMul", 11)
    said = kind().fit(records).view(graph, HOST).predict(ROUTES)
    assert said.routes == tuple(ROUTES)
    for name in ("log_ratio", "log_ratio_std", "ratio_low", "ratio_high", "failure", "build_seconds"):
        array = getattr(said, name)
        assert array.shape == (len(ROUTES),)
        assert np.isfinite(array).all()
    assert (said.ratio_low <= said.ratio).all()
    assert (said.ratio <= said.ratio_high).all()
    assert ((said.failure >= 0) & (said.failure <= 1)).all()
    assert said.default_ms_low <= said.default_ms <= said.default_ms_high
    assert said.local_ms.shape == (11,)
    assert math.log(said.default_ms / said.local_ms.sum()) == pytest.approx(said.gap)
    assert said.build_seconds == pytest.approx(2.0)
    # of the default route all is known
    assert (said.log_ratio[0], said.log_ratio_std[0], said.failure[0]) == (0, 0, 0)


def test_one_of_each():
    names = [model.name for model in baselines()]
    assert names == ["default", "random", "roofline", "popularity", "boosting"]


def test_popularity_is_the_mean_worth_of_each_setting(records):
    said = PopularityBaseline().fit(records).view(make_graph("Conv", 12), HOST).predict(ROUTES)
    worth = dict(zip([str(route) for route in ROUTES], said.log_ratio, strict=True))
    assert worth["threads=1"] == pytest.approx(0.5, abs=0.1)
    assert worth["level=basic"] == pytest.approx(0.1, abs=0.1)
    assert worth["precision=int8"] == pytest.approx(-0.1, abs=0.1)  # the mean of -0.6 and 0.4
    assert worth["precision=int8 threads=1"] == pytest.approx(worth["threads=1"] + worth["precision=int8"])
    risk = dict(zip([str(route) for route in ROUTES], said.failure, strict=True))
    assert risk["level=off"] > 0.8
    assert risk["threads=1"] < 0.1


def test_popularity_knows_nothing_of_settings_never_measured(records):
    said = PopularityBaseline().fit(records).view(make_graph("Conv", 12), HOST).predict([Route({"new": "1"})])
    assert said.log_ratio[0] == 0


def test_boosting_tells_graphs_apart(records):
    model = BoostingBaseline().fit(records)
    int8 = [Route({"precision": "int8"})]
    views = [model.view(make_graph(op, 14), HOST) for op in ("MatMul", "Conv")]
    worth = [float(view.predict(int8).log_ratio[0]) for view in views]
    assert worth[0] < -0.3
    assert worth[1] > 0.1
    assert model.view(make_graph("Conv", 14), HOST).predict([Route({"level": "off"})]).failure[0] > 0.8


@pytest.mark.parametrize("kind", [RooflineBaseline, PopularityBaseline, BoostingBaseline])
def test_the_roofline_is_scaled_to_what_was_measured(kind, records):
    graph = make_graph("Conv", 40)  # larger than any of the history
    said = kind().fit(records).view(graph, HOST).predict([Route()])
    assert said.default_ms == pytest.approx(2.5 * roofline_ms(graph, HOST).sum(), rel=0.01)
    assert said.gap == pytest.approx(math.log(2.0))


def test_the_default_baseline_takes_the_middle_of_the_history(records):
    middle = float(np.median([item.default_ms for item in records.measurements if item.route.is_default]))
    said = DefaultBaseline().fit(records).view(make_graph("Conv", 40), HOST).predict([Route()])
    assert said.default_ms == pytest.approx(middle, rel=0.05)


def test_random_is_the_same_for_the_same_route_and_spreads_as_the_history_does(records):
    view = RandomBaseline().fit(records).view(make_graph("Conv", 12), HOST)
    routes = [Route({"threads": str(number)}) for number in range(500)]
    first, second = view.predict(routes).log_ratio, view.predict(routes[::-1]).log_ratio[::-1]
    assert (first == second).all()
    measured = [item.log_ratio for item in records.measurements if item.ratio and not item.route.is_default]
    assert np.std(first) == pytest.approx(np.std(measured), rel=0.15)


@pytest.mark.parametrize("kind", KINDS)
def test_measurements_correct_a_view(kind, records):
    """What was measured is then known, and what shares its settings moves with it."""
    graph = make_graph("MatMul", 11)
    view = kind().fit(records).view(graph, HOST)
    route, related = Route({"precision": "int8"}), Route({"precision": "int8", "arena": "off"})
    before = view.predict([route, related])
    ratio = math.exp(before.log_ratio[0] - 0.5)
    times = {"ratio": ratio, "ratio_low": ratio * 0.999, "ratio_high": ratio * 1.001, "default_ms": 7.0}
    measured = Measurement(graph.fingerprint, route, HOST.identity, Status.OK, **times)
    after = view.adapt([measured]).predict([route, related])
    assert after.log_ratio[0] == pytest.approx(before.log_ratio[0] - 0.5, abs=0.05)
    assert after.log_ratio[1] < before.log_ratio[1] - 0.1
    assert after.log_ratio_std[0] < before.log_ratio_std[0] / 2
    assert after.default_ms == pytest.approx(7.0)
    assert (view.predict([route]).log_ratio == before.log_ratio[:1]).all()  # the first view has not changed


def test_a_measured_failure_makes_its_settings_suspect(records):
    graph = make_graph("MatMul", 11)
    view = PopularityBaseline().fit(records).view(graph, HOST)
    route = Route({"precision": "int8"})
    failed = Measurement(graph.fingerprint, route, HOST.identity, Status.INACCURATE, ratio=0.5)
    related = [Route({"precision": "int8", "arena": "off"})]
    assert view.adapt([failed]).predict(related).failure[0] > view.predict(related).failure[0] + 0.3


def test_intervals_come_from_families_held_out(records):
    """In the fit itself boosting is almost exact; on new families it is not, and the intervals say so."""
    model = BoostingBaseline().fit(records)
    assert model.route_errors.std > 0.02


def test_an_unknown_backend_is_a_warning(records):
    model = PopularityBaseline().fit(records)
    assert model.view(make_graph("Conv", 9), HOST).warnings == ()
    (warning,) = model.view(make_graph("Conv", 9), Environment("tensorrt", "11", "gpu")).warnings
    assert "tensorrt was never measured (only onnxruntime)" in warning


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_fit_is_a_usage_error(kind):
    with pytest.raises(UsageError, match="holds no timed route"):
        kind().fit(Records())


def test_a_graph_without_operators_is_a_usage_error(records):
    empty = Graph((), (Tensor((1,), "float32"),), (0,), (0,), 17)
    with pytest.raises(UsageError, match="no operators"):
        PopularityBaseline().fit(records).view(empty, HOST)


def test_one_family_is_enough_to_fit():
    records = make_records(models=1)
    assert PopularityBaseline().fit(records).route_errors.std > 0


def test_errors_of_nothing_are_large():
    assert Errors.of([], 0.9) == Errors(1.0, 1.0)


def test_the_baselines_import_without_torch_or_scikit_learn():
    code = "import sys, routecast.costmodel.baselines; print({'torch', 'sklearn'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
