from __future__ import annotations

import dataclasses
import json

from routecast.costmodel.ensemble import Ensemble
from routecast.costmodel.familiarity import Familiarity
from routecast.datasets.environment import Environment
from routecast.datasets.graph import Graph


def test_nothing_to_say_of_what_is_known(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    assert ensemble.view(graph, environment).warnings == ()


def test_unknown_operators_are_named_with_their_share(
    ensemble: Ensemble, other_graph: Graph, environment: Environment
) -> None:
    (warning,) = ensemble.view(other_graph, environment).warnings
    assert "Gelu, LayerNormalization" in warning
    assert "67% of the model's FLOPs" in warning


def test_unknown_device_and_back_end_are_told_apart(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    device = dataclasses.replace(environment, device="Other CPU")
    assert "device Other CPU" in ensemble.view(graph, device).warnings[0]
    backend = Environment("tensorrt", "11.1", "Some GPU")
    (warning,) = ensemble.view(graph, backend).warnings
    assert "back-end tensorrt" in warning
    assert "onnxruntime" in warning


def test_small_history_is_confessed(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    small = dataclasses.replace(ensemble.familiarity, measurements=0, models=0, calibrated=False)
    warnings = small.warnings(graph, environment)
    assert "only 0 measurements" in warnings[0]
    assert "guesses" in warnings[1]


def test_json_round_trip(ensemble: Ensemble) -> None:
    text = json.dumps(ensemble.familiarity.to_json())
    assert Familiarity.from_json(json.loads(text)) == ensemble.familiarity
