from __future__ import annotations

import dataclasses
import math
import time

import numpy as np
import pytest

from routecast.costmodel.ensemble import Ensemble
from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.graph import Graph, Node, Tensor
from routecast.datasets.measurement import Measurement, Purpose, Status
from routecast.datasets.route import Knob, Route, RouteSpace

ROUTES = [Route(), *map(Route.parse, ("session.threads=1", "session.arena=off", "session.arena=off session.threads=1"))]


def measured(route: Route, ratio: float | None, status: Status = Status.OK, default: float = 5.0) -> Measurement:
    low, high = (None, None) if ratio is None else (ratio * 0.99, ratio * 1.01)
    return Measurement(
        "f", route, "e", status, default_ms=default, ratio=ratio, ratio_low=low, ratio_high=high,
        default_blocks_ms=(4.9, 5.0, 5.1),
    )  # fmt: skip


def test_predictions_have_the_shapes_and_order_promised(
    ensemble: Ensemble, graph: Graph, environment: Environment
) -> None:
    found = ensemble.view(graph, environment).predict(ROUTES)
    assert found.routes == tuple(ROUTES)
    for array in (found.log_ratio, found.log_ratio_std, found.ratio_low, found.failure, found.build_seconds):
        assert array.shape == (len(ROUTES),)
        assert array.dtype == np.float64
    assert np.all(found.ratio_low <= found.ratio)
    assert np.all(found.ratio <= found.ratio_high)
    assert np.all((found.failure >= 0) & (found.failure <= 1))
    assert found.default_ms_low < found.default_ms < found.default_ms_high
    assert found.local_ms.shape == (len(graph.nodes),)
    assert found.local_ms.sum() * math.exp(found.gap) == pytest.approx(found.default_ms)


def test_default_route_is_certain(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    found = ensemble.view(graph, environment).predict(ROUTES)
    assert (found.log_ratio[0], found.log_ratio_std[0], found.failure[0]) == (0, 0, 0)
    assert (found.ratio_low[0], found.ratio_high[0]) == (1, 1)


def test_scores_do_not_depend_on_the_batch(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    together = ensemble.view(graph, environment).predict(ROUTES)
    view = ensemble.view(graph, environment)
    backwards = [view.predict([route]).log_ratio[0] for route in reversed(ROUTES)]
    assert together.log_ratio == pytest.approx(backwards[::-1], abs=1e-5)


def test_no_routes_give_empty_predictions(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    assert ensemble.view(graph, environment).predict([]).log_ratio.shape == (0,)


def test_setting_nobody_measured_is_less_certain(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    found = ensemble.view(graph, environment).predict([Route.parse("session.arena=off"), Route.parse("new.knob=on")])
    assert found.log_ratio_std[1] ** 2 > found.log_ratio_std[0] ** 2 + 0.9 * ensemble.familiarity.spread**2 / 2


def test_adapting_moves_what_was_measured_and_its_relatives(
    ensemble: Ensemble, graph: Graph, environment: Environment
) -> None:
    view = ensemble.view(graph, environment)
    before = view.predict(ROUTES)
    after = view.adapt([measured(ROUTES[1], 0.5)]).predict(ROUTES)
    assert after.ratio[1] == pytest.approx(0.5, rel=0.02)
    assert after.log_ratio[3] < before.log_ratio[3] - 0.1
    assert after.log_ratio[2] == pytest.approx(before.log_ratio[2])
    assert after.log_ratio[0] == 0
    assert after.log_ratio_std[1] < 0.1 * before.log_ratio_std[1]
    assert after.log_ratio_std[3] < before.log_ratio_std[3]
    assert after.ratio_low[1] < 0.5 < after.ratio_high[1]
    assert np.array_equal(view.predict(ROUTES).log_ratio, before.log_ratio)


def test_default_latency_becomes_the_measured_one(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    found = ensemble.view(graph, environment).adapt([measured(ROUTES[1], 0.5)]).predict(ROUTES)
    assert found.default_ms == pytest.approx(5.0)
    assert 4.9 <= found.default_ms_low < 5.0 < found.default_ms_high <= 5.1
    assert found.latency_ms[0] == pytest.approx(5.0)
    assert found.local_ms.sum() * math.exp(found.gap) == pytest.approx(5.0)


def test_adapting_in_steps_equals_adapting_at_once(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    view = ensemble.view(graph, environment)
    first, second = measured(ROUTES[1], 0.5), measured(ROUTES[2], 1.2)
    steps = view.adapt([first]).adapt([first, second]).predict(ROUTES)
    assert steps.log_ratio == pytest.approx(view.adapt([first, second]).predict(ROUTES).log_ratio)


def test_failure_spreads_to_routes_with_the_setting(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    view = ensemble.view(graph, environment)
    before = view.predict(ROUTES).failure
    after = view.adapt([measured(ROUTES[1], None, Status.CRASHED)]).predict(ROUTES)
    assert after.failure[1] > max(before[1], 0.6)
    assert after.failure[3] > before[3]
    assert after.failure[2] == pytest.approx(before[2])
    assert after.log_ratio[1] == pytest.approx(view.predict(ROUTES).log_ratio[1])


def test_control_only_tells_the_default_latency(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    control = dataclasses.replace(measured(Route(), 1.01), purpose=Purpose.CONTROL)
    view = ensemble.view(graph, environment)
    found = view.adapt([control]).predict(ROUTES)
    assert found.default_ms == pytest.approx(5.0)
    assert found.log_ratio == pytest.approx(view.predict(ROUTES).log_ratio)


def test_graph_without_operators_is_refused(ensemble: Ensemble, environment: Environment) -> None:
    with pytest.raises(UsageError, match="no operators"):
        ensemble.view(Graph((), (), (), (), 17), environment)


@pytest.mark.slow
def test_scoring_ten_thousand_routes_of_a_large_network(ensemble: Ensemble, environment: Environment) -> None:
    tensors = tuple(Tensor((1, 64, 56, 56), "float32") for _ in range(501))
    nodes = tuple(
        Node("Conv" if index % 2 else "Relu", "", (index,), (index + 1,), {}, 1e8, 1e6) for index in range(500)
    )
    view = ensemble.view(Graph(nodes, tensors, (0,), (500,), 17), environment)
    space = RouteSpace(tuple(Knob(f"session.knob{index}", ("a", "b", "c"), "a") for index in range(24)))
    routes = space.sample(10_000, np.random.default_rng(0))
    start = time.process_time()
    assert len(view.predict(routes).log_ratio) == 10_000
    assert time.process_time() - start < 1.0


def inexact(route: Route, loss: float) -> Measurement:
    status = Status.OK if loss <= 0.01 else Status.INACCURATE
    return dataclasses.replace(measured(route, 0.9, status), accuracy={"cos": loss})


def test_failure_follows_the_accuracy_limit(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    strict, usual, lax = (ensemble.view(graph, environment, most_loss=loss).predict(ROUTES) for loss in (1e-4, 1e-2, 1))
    assert np.all(strict.failure[1:] > usual.failure[1:])
    assert np.all(usual.failure[1:] > lax.failure[1:])
    assert np.array_equal(strict.loss, lax.loss)
    assert strict.failure[0] == 0
    assert strict.loss[0] == pytest.approx(1e-6)


def test_near_miss_of_the_limit_tells_how_near_its_relatives_are(
    ensemble: Ensemble, graph: Graph, environment: Environment
) -> None:
    view = ensemble.view(graph, environment)
    near, far = (view.adapt([inexact(ROUTES[1], loss)]).predict(ROUTES) for loss in (0.012, 0.5))
    assert near.loss[1] == pytest.approx(0.012, rel=0.05)
    assert far.loss[1] == pytest.approx(0.5, rel=0.05)
    assert near.failure[1] > 0.95
    assert near.failure[3] < far.failure[3]
    assert near.loss[2] == pytest.approx(view.predict(ROUTES).loss[2])


def test_accurate_route_clears_its_relatives(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    view = ensemble.view(graph, environment)
    after = view.adapt([inexact(ROUTES[1], 1e-7)]).predict(ROUTES)
    assert after.failure[3] < view.predict(ROUTES).failure[3]
    assert after.loss[1] == pytest.approx(1e-6, rel=0.1)
