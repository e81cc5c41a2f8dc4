from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import routecast.training
from routecast.costmodel.base import CostModel, ModelView, Predictions
from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.graph import Graph
from routecast.datasets.measurement import Measurement, Status
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.datasets.zoo import network
from routecast.tuner.backends.onnxruntime.backend import OnnxRuntimeBackend
from routecast.tuner.backends.tensorrt.backend import TensorRt
from routecast.tuner.cli import app
from routecast.tuner.ranking import candidate_routes, predict, text_for_tuner, tuner_routes
from routecast.tuner.results import RoutePrediction


class _ThreadsAreBad(CostModel):
    """Predicts 0.5 for one thread, 0.9 for any other change."""

    name = "threads are bad"

    def view(self, graph: Graph, environment: Environment, *, most_loss: float = 0.01) -> ModelView:
        return _View()


class _View(ModelView):
    @property
    def warnings(self) -> tuple[str, ...]:
        return ("made up for a test",)

    def predict(self, routes: Sequence[Route]) -> Predictions:
        one = np.ones(len(routes))
        values = [0.5 if route.get("session.intra_op_threads") == "1" else 0.9 for route in routes]
        ratio = np.where([route.is_default for route in routes], 1.0, values)
        return Predictions(
            tuple(routes),
            np.log(ratio),
            0.1 * one,
            0.8 * ratio,
            1.2 * ratio,
            0.1 * one,
            np.nan * one,
            one,
            10.0,
            8.0,
            13.0,
            one,
            0.0,
        )

    def adapt(self, measurements: object) -> ModelView:
        return self


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return network("onnx_squeezenet").make(tmp_path_factory.mktemp("zoo"))


def test_routes_are_ranked_without_running_anything(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("predicting must not build or load")

    monkeypatch.setattr("routecast.tuner.backends.onnxruntime.backend.OnnxRuntimeBackend.build", forbidden)
    monkeypatch.setattr("routecast.tuner.backends.onnxruntime.backend.OnnxRuntimeBackend.load", forbidden)
    ranking = predict(model, cost_model=_ThreadsAreBad(), top=5, pool=200)
    assert ranking.scored == 200
    assert len(ranking.routes) == 5
    best = ranking.routes[0]
    assert best.route["session.intra_op_threads"] == "1"
    assert (best.ratio, best.ratio_low, best.ratio_high) == pytest.approx((0.5, 0.4, 0.6))
    assert best.latency_ms == pytest.approx(5.0)
    assert ranking.warnings == ("made up for a test",)


def test_what_may_fail_promises_less() -> None:
    def said(ratio: float, failure: float) -> RoutePrediction:
        return RoutePrediction(Route(), ratio, ratio, ratio, 1.0, failure)

    assert said(0.5, 0.0).promise == 0.5
    assert said(0.5, 0.9).promise == pytest.approx(0.95)
    assert said(0.5, 0.9).promise > said(0.8, 0.1).promise
    assert said(0.5, 1.0).promise == 1.0
    assert said(1.3, 0.9).promise == 1.3, "what fails is no better than what is slow"


def test_candidates_are_distinct_and_hold_the_default_and_every_single_change() -> None:
    space = RouteSpace(tuple(Knob(name, ("a", "b", "c"), "a") for name in "xyz"))
    routes = candidate_routes(space, 20, seed=0)
    assert routes[0] == Route()
    assert len(set(routes)) == len(routes) == 20
    assert set(space.single_changes()) <= set(routes)
    assert candidate_routes(space, 20, seed=0) == routes
    assert len(candidate_routes(space, 3, seed=0)) == 3


def test_no_cost_model_is_a_usage_error(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routecast.training, "find_cost_model", lambda given: None, raising=False)
    with pytest.raises(UsageError, match="routecast train"):
        predict(model)


def test_the_command_shows_a_table_and_json(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []

    def find(folder: object) -> CostModel:
        given.append(folder)
        return _ThreadsAreBad()

    monkeypatch.setattr(routecast.training, "find_cost_model", find, raising=False)
    arguments = ["predict", str(model), "--top", "3", "--pool", "100", "--cost-model", "folder"]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0
    for text in (
        "best 3 of 100 routes",
        "0.500 [0.400, 0.600]",
        "default route: 10 ms [8, 13]",
        "made up for a test",
    ):
        assert text in shown.output, text
    data = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert len(data["routes"]) == 3
    assert data["routes"][0]["ratio"] == pytest.approx(0.5)
    assert given == [Path("folder"), Path("folder")]


class _Refusing(_ThreadsAreBad):
    def refusal(self, environment: Environment) -> str | None:
        return f"{environment.backend} {environment.minor_version} was never measured (only 1.20)"


def test_a_cost_model_of_another_version_is_refused_unless_it_is_asked_for(model: Path) -> None:
    with pytest.raises(UsageError, match=r"refused: onnxruntime .* never measured \(only 1.20\); .*--any-version"):
        predict(model, cost_model=_Refusing(), pool=50)
    assert predict(model, cost_model=_Refusing(), pool=50, any_version=True).scored == 50


def test_given_routes_are_ranked_for_a_given_place_without_its_backend(model: Path) -> None:
    elsewhere = Environment("a backend that is not here", "1.0", "Some accelerator")
    routes = [Route.parse(text) for text in ("a=1", "session.intra_op_threads=1", "")]
    ranking = predict(model, cost_model=_ThreadsAreBad(), environment=elsewhere, routes=routes)
    assert ranking.device == "Some accelerator"
    assert [str(item.route) for item in ranking.routes] == ["session.intra_op_threads=1", "a=1", ""]


class _LastKnobIsBest(_View):
    """Predicts the less, the later in the alphabet the route's last setting stands."""

    def predict(self, routes: Sequence[Route]) -> Predictions:
        order = sorted(range(len(routes)), key=lambda index: str(routes[index]), reverse=True)
        ratio = np.empty(len(routes))
        ratio[order] = np.linspace(0.5, 0.9, len(routes))
        return replace(super().predict(routes), log_ratio=np.log(ratio))


SPACE = RouteSpace(
    (
        Knob("precision.policy", ("fp32", "fp16"), "fp32"),
        Knob("compiler.kgen:tiling", ("2", "0", "1"), "2"),
        Knob("compiler.concat_elim", ("on", "off"), "on"),
        Knob("compiler.slice_elim", ("on", "off"), "on"),
    )
)


def test_a_vendors_tuner_is_told_what_can_be_set_besides() -> None:
    base = Route.parse("precision.policy=fp16 compiler.concat_elim=off")
    routes = tuner_routes(SPACE, base, "compiler")
    more = ("compiler.kgen:tiling=0", "compiler.kgen:tiling=1", "compiler.slice_elim=off")
    assert set(routes) == {Route.parse(f"{base} {setting}") for setting in more}


def test_a_vendors_tuner_goes_on_from_the_winner_in_the_order_predicted() -> None:
    base = Route.parse("precision.policy=fp16 compiler.concat_elim=off")
    text = text_for_tuner(TensorRt(), SPACE, base, _LastKnobIsBest(), ())
    # The knob that comes last is varied first.
    assert text == "-concat_elim=off\n-kgen:tiling=[2|1|0]\n-slice_elim=[on|off]\n"
    assert text_for_tuner(OnnxRuntimeBackend(), SPACE, base, _LastKnobIsBest(), ()) == ""


def test_without_a_cost_model_a_vendors_tuner_is_told_what_was_measured() -> None:
    measured = [
        Measurement("f", Route.parse(route), "e", Status.OK, "m", ratio=ratio)
        for route, ratio in (
            ("compiler.slice_elim=off", 0.9),
            ("compiler.kgen:tiling=1", 0.8),
            ("compiler.concat_elim=off", 1.1),
        )
    ]
    assert text_for_tuner(TensorRt(), SPACE, Route(), None, measured) == "-slice_elim=[on|off]\n-kgen:tiling=[2|1]\n"


def test_predict_writes_a_tuning_file_without_tensorrt(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routecast.training, "find_cost_model", lambda folder: _ThreadsAreBad(), raising=False)
    target = tmp_path / "routes.txt"
    arguments = ["predict", str(model), "--backend", "tensorrt", "--top", "3", "--route-file", str(target)]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert "an unknown device: best 3 of" in shown.output
    lines = target.read_text().splitlines()
    assert 1 <= len(lines) <= 3
    assert all(re.fullmatch(r"-[a-z0-9_:]+=\[[^\s\]]+\|[^\s\]]+\]", line, re.IGNORECASE) for line in lines)


def test_a_backend_without_a_tuner_has_no_tuning_file(model: Path, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["predict", str(model), "--route-file", str(tmp_path / "routes.txt")])
    assert shown.exit_code == 2
    assert "onnxruntime has none" in shown.output


def test_a_tuning_file_needs_compiler_knobs(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROUTECAST_RTX_COMPILER_KNOBS", raising=False)
    arguments = ["predict", str(model), "--backend", "tensorrt-rtx", "--route-file", str(tmp_path / "routes.txt")]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 2
    assert "ROUTECAST_RTX_COMPILER_KNOBS=1" in shown.output
