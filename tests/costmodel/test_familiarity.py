from __future__ import annotations

import dataclasses
import json

from routecast.costmodel.ensemble import Ensemble
from routecast.costmodel.familiarity import Familiarity
from routecast.datasets.environment import Environment
from routecast.datasets.graph import Graph, Node


def test_nothing_to_say_of_what_is_known(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    assert ensemble.view(graph, environment).warnings == ()


def test_unknown_operators_are_named_with_their_share(
    ensemble: Ensemble, other_graph: Graph, environment: Environment
) -> None:
    (warning,) = ensemble.view(other_graph, environment).warnings
    assert "Gelu, LayerNormalization" in warning
    assert "67% of the model's time" in warning


def test_operators_that_take_no_time_are_no_reason_to_warn(
    ensemble: Ensemble, graph: Graph, environment: Environment
) -> None:
    small = Node("Shape", "", (0,), (1,), {}, 0.0, 8.0)
    larger = dataclasses.replace(graph, nodes=(*graph.nodes, small))
    assert ensemble.view(larger, environment).warnings == ()


def test_unknown_device_and_back_end_are_told_apart(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    device = dataclasses.replace(environment, device="Other CPU")
    assert "neither Other CPU nor a device like it" in ensemble.view(graph, device).warnings[0]
    backend = Environment("tensorrt", "11.1", "Some GPU")
    (warning,) = ensemble.view(graph, backend).warnings
    assert "back-end tensorrt" in warning
    assert "onnxruntime" in warning


def test_device_like_a_known_one_is_known(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    for threads, known in ((3.0, True), (2.0, True), (32.0, False)):
        numbers = {"threads": threads, "peak_gflops": 150.0}
        other = dataclasses.replace(environment, device="Other CPU", numbers=numbers)
        assert (ensemble.view(graph, other).warnings == ()) is known


def test_small_history_is_confessed(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    small = dataclasses.replace(ensemble.familiarity, measurements=0, models=0, calibrated=False)
    warnings = small.warnings(graph, environment)
    assert "only 0 measurements" in warnings[0]
    assert "guesses" in warnings[1]


def test_json_round_trip(ensemble: Ensemble) -> None:
    text = json.dumps(ensemble.familiarity.to_json())
    assert Familiarity.from_json(json.loads(text)) == ensemble.familiarity
