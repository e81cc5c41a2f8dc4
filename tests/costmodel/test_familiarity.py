from __future__ import annotations

import dataclasses
import json

from routecast.costmodel.ensemble import Ensemble
from routecast.costmodel.familiarity import Familiarity, powers, seen_versions
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


def test_a_device_of_the_same_name_with_other_instructions_is_another(
    ensemble: Ensemble, graph: Graph, environment: Environment
) -> None:
    numbers = {**environment.numbers, "threads": 2.0, "peak_gflops": 100.0, "avx2": 1.0, "vnni": 1.0}
    newer = dataclasses.replace(environment, numbers=numbers)
    assert ensemble.view(graph, newer).warnings == (
        "neither Some CPU with avx2, vnni nor a device like it was ever measured with onnxruntime",
    )
    assert not environment.comparable(newer)
    learned = dataclasses.replace(ensemble.familiarity, devices={newer.kind: powers(newer)})
    assert learned.warnings(graph, newer) == ()
    alike = dataclasses.replace(newer, device="Other CPU", numbers={**numbers, "peak_gflops": 150.0, "neon": 0.0})
    assert learned.warnings(graph, alike) == ()
    assert learned.warnings(graph, dataclasses.replace(alike, numbers={**numbers, "vnni": 0.0})) != ()


def test_small_history_is_confessed(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    small = dataclasses.replace(ensemble.familiarity, measurements=0, models=0, calibrated=False)
    warnings = small.warnings(graph, environment)
    assert "only 0 measurements" in warnings[0]
    assert "guesses" in warnings[1]


def test_json_round_trip(ensemble: Ensemble) -> None:
    text = json.dumps(ensemble.familiarity.to_json())
    assert Familiarity.from_json(json.loads(text)) == ensemble.familiarity


def test_a_version_of_the_backend_that_was_never_measured_is_refused(
    ensemble: Ensemble, graph: Graph, environment: Environment
) -> None:
    trained = dataclasses.replace(ensemble.familiarity, versions={"onnxruntime": ["1.19", "1.20"]})
    model = dataclasses.replace(ensemble, familiarity=trained)
    newer = dataclasses.replace(environment, backend_version="1.30.0")
    assert model.refusal(newer) == "onnxruntime 1.30 was never measured (only 1.19, 1.20)"
    assert model.view(graph, newer).warnings == (model.refusal(newer),)  # a search then does without it
    assert model.of_any_version().refusal(newer) is None
    assert model.of_any_version().view(graph, newer).warnings == ()
    for fine in ("1.20.1", "1.19", ""):
        assert model.refusal(dataclasses.replace(environment, backend_version=fine)) is None


def test_a_cost_model_of_before_versions_were_kept_refuses_none(ensemble: Ensemble, environment: Environment) -> None:
    data = ensemble.familiarity.to_json()
    del data["versions"]
    assert Familiarity.from_json(data).refusal(environment) is None


def test_versions_are_counted_by_backend(environment: Environment) -> None:
    others = [Environment("tensorrt", version, "Some GPU") for version in ("11.2.0", "11.1.3", "11.1.0", "")]
    assert seen_versions([environment, *others]) == {"onnxruntime": ["1.20"], "tensorrt": ["11.1", "11.2"]}
