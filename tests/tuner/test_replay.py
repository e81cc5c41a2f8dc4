from __future__ import annotations

import math

import pytest

from routecast.costmodel.baselines import PopularityBaseline
from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.graph import Graph, Node, Tensor
from routecast.datasets.measurement import Measurement, Purpose, Status
from routecast.datasets.records import Records
from routecast.datasets.route import Route
from routecast.tuner.backends.replay import best_ratio, regret, replay_search, replay_tables
from routecast.tuner.search import make_strategy, strategy_names

HOST = Environment("onnxruntime", "1", "cpu")
WORTH = {"a.x=1": -0.3, "a.y=1": -0.1, "b.z=1": 0.2, "b.w=1": 0.0, "b.v=1": -0.2}


def make_graph(width: int) -> Graph:
    return Graph((Node("Relu", "r", (0,), (1,)),), (Tensor((width,), "float32"),) * 2, (0,), (1,), 17)


def measured(graph: Graph, text: str, **changes: object) -> Measurement:
    ratio = math.exp(sum(WORTH[setting] for setting in text.split()))
    name = f"m{graph.tensors[0].shape}"
    values = {"status": Status.OK, "model": name, "family": "f", "ratio": ratio, **changes}
    return Measurement(graph.fingerprint, Route.parse(text), HOST.identity, **values)  # type: ignore[arg-type]


@pytest.fixture
def records() -> Records:
    """Three models; routes of up to three settings, which fail with ``a.x`` and ``b.v`` together."""
    names = list(WORTH)
    texts = [" ".join(n for i, n in enumerate(names) if bits >> i & 1) for bits in range(1, 32)]
    found = Records(environments={HOST.identity: HOST})
    for width in (4, 8, 16):
        graph = make_graph(width)
        found.graphs[graph.fingerprint] = graph
        found.measurements.append(measured(graph, "", purpose=Purpose.CONTROL))
        for text in texts:
            fails = "a.x=1" in text and "b.v=1" in text
            status = Status.INACCURATE if fails else Status.OK
            if len(text.split()) <= 3:
                found.measurements.append(measured(graph, text, status=status))
    return found


def test_a_table_per_model_without_the_control(records):
    tables = replay_tables(records)
    assert [table.model for table in tables] == ["m(4,)", "m(8,)", "m(16,)"]
    assert all(len(table.routes) == 25 and Route() not in table.routes for table in tables)
    assert replay_tables(records, at_least=26) == []


def test_measuring_is_looking_up(records):
    table = replay_tables(records)[0]
    route = Route.parse("a.x=1 a.y=1")
    assert table.measure(route).ratio == pytest.approx(math.exp(-0.4))
    with pytest.raises(UsageError, match=r"route a.q=1 of m\(4,\) was not recorded: choose one of 25"):
        table.measure(Route.parse("a.q=1"))


def test_the_best_is_the_fastest_that_is_ok(records):
    table = replay_tables(records)[0]
    assert table.best == pytest.approx(math.exp(-0.4))
    assert best_ratio([]) == 1.0
    assert regret([table.measure(Route.parse("a.x=1"))], table) == pytest.approx(math.exp(0.1) - 1)
    assert regret([table.measure(Route.parse("a.x=1 b.v=1"))], table) == pytest.approx(math.exp(0.4) - 1)


@pytest.mark.parametrize("name", strategy_names())
def test_every_strategy_stays_within_the_table(records, name):
    table = replay_tables(records)[0]
    view = PopularityBaseline().fit(records).view(table.graph, table.environment)
    strategy = make_strategy(name, table.space, view=view, candidates=table.routes, builds=8)
    done = replay_search(strategy, table, builds=8)
    routes = [item.route for item in done]
    assert len(set(routes)) == len(routes)
    assert len(routes) == (8 if name != "fast" else 5)


def test_a_cost_model_finds_the_best_where_few_builds_do_not_cover_the_table(records):
    table = replay_tables(records)[0]
    view = PopularityBaseline().fit(records).view(table.graph, table.environment)
    guided = make_strategy("model", table.space, view=view, candidates=table.routes, builds=4)
    assert regret(replay_search(guided, table, builds=4), table) == pytest.approx(0.0, abs=1e-9)


def test_the_search_ends_when_the_strategy_does(records):
    table = replay_tables(records)[0]
    strategy = make_strategy("random", table.space, candidates=table.routes)
    assert len(replay_search(strategy, table, builds=100)) == 25
