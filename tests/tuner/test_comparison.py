from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from routecast.costmodel.base import CostModel, ModelView, Predictions
from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.graph import Graph, Node, Tensor
from routecast.datasets.history import History
from routecast.datasets.measurement import Measurement, Purpose, Status
from routecast.datasets.records import Records
from routecast.datasets.route import Route
from routecast.tuner.comparison import Pair, compare_model, score
from routecast.tuner.results import RoutePrediction, TuneResult
from routecast.tuner.sources import HELD_OUT, SEEN, compare, compare_records, compare_result, is_result


def test_a_tunes_result_is_compared_with_its_own_predictions(result: TuneResult) -> None:
    (model,) = compare_result(result).models
    assert (model.model, model.family, model.failed) == ("toy", "toys", 1)
    assert model.scores.routes == 5  # neither the default route nor the inaccurate one
    assert model.scores.coverage == pytest.approx(4 / 5)  # arena=off: 1.25 is above 1.01 * 1.1
    # The ranks differ in one swap: predicted 1.01 < 1.02, measured 1.25 > 1.04.
    assert model.scores.spearman == pytest.approx(0.9)
    errors = sorted(abs(p / m - 1) for p, m in [(0.80, 0.79), (0.85, 0.86), (0.93, 0.90), (1.02, 1.04), (1.01, 1.25)])
    assert model.scores.ratio_error == pytest.approx(errors[2])


def test_the_two_losses(result: TuneResult) -> None:
    (model,) = compare_result(result).models
    assert model.best is not None
    assert model.best.measurement.route == Route.parse("pass.fuse=on session.threads=2")
    assert model.pruning_loss == pytest.approx(1 / 0.79 - 1)
    # threads=2 has the smallest sum of local times (6.5 ms) but takes 0.86; the fastest takes 0.79.
    assert model.selection_loss == pytest.approx(0.86 / 0.79 - 1)
    assert model.first_choice_loss == pytest.approx(0.0)
    assert model.gap == pytest.approx((10 / 9 + 7.9 / 7) / 2)  # the middle two of six profiled routes


def test_the_confirmation_counts_and_keeps_the_local_profile(result: TuneResult) -> None:
    (model,) = compare_result(result).models
    first = model.pairs[0].measurement
    assert first.purpose is Purpose.CONFIRM
    assert first.ratio == 0.79
    assert first.local_sum_ms == pytest.approx(7.0)


def test_failed_routes_come_last(result: TuneResult) -> None:
    (model,) = compare_result(result).models
    assert model.pairs[-1].measurement.status is Status.INACCURATE


def test_nothing_ok_gives_no_losses(measurements: tuple[Measurement, ...]) -> None:
    failed = replace(measurements[1], status=Status.CRASHED, ratio=None, local_profile=())
    model = compare_model([Pair(failed)])
    assert model.best is None
    assert (model.pruning_loss, model.selection_loss, model.gap) == (None, None, None)
    assert model.failed == 1


def test_no_predictions_give_no_scores(measurements: tuple[Measurement, ...]) -> None:
    scores = score([Pair(measurement) for measurement in measurements])
    assert scores.routes == 0
    assert scores.coverage is None


def test_a_pruning_loss_is_never_negative(measurements: tuple[Measurement, ...]) -> None:
    slower = replace(measurements[1], ratio=1.3)
    assert compare_model([Pair(slower)]).pruning_loss == 0.0


def test_json_holds_every_route(result: TuneResult) -> None:
    data = json.loads(json.dumps(compare_result(result).to_json()))
    (model,) = data["models"]
    assert len(model["routes"]) == 7
    assert model["routes"][0]["predicted"]["ratio"] == 0.80
    assert model["routes"][0]["measured"]["local_sum_ms"] == pytest.approx(7.0)


def test_compare_reads_a_results_folder_and_its_file(result: TuneResult, tmp_path: Path) -> None:
    path = result.save()
    assert is_result(tmp_path)
    assert compare(path).to_json() == compare(tmp_path).to_json()


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"model_name": 1}'])
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(content)
    with pytest.raises(UsageError, match="not the result of a tune"):
        compare(path)


def test_a_missing_history_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such history"):
        compare(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()


def test_an_empty_history_is_refused(tmp_path: Path) -> None:
    History(tmp_path / "empty.db").close()
    with pytest.raises(UsageError, match="no measurements"):
        compare(tmp_path / "empty.db")


class _Half(CostModel):
    """Predicts that each setting halves the latency."""

    name = "half"

    def view(self, graph: Graph, environment: Environment, *, most_loss: float = 0.01) -> ModelView:
        return _HalfView()


class _HalfView(ModelView):
    def __init__(self, factor: float = 0.5) -> None:
        self._factor = factor

    @property
    def warnings(self) -> tuple[str, ...]:
        return ("a test's warning",)

    def predict(self, routes: list[Route]) -> Predictions:  # type: ignore[override]
        ratio = np.array([self._factor ** len(route) for route in routes])
        one = np.ones(len(routes))
        return Predictions(
            tuple(routes),
            np.log(ratio),
            0.1 * one,
            0.5 * ratio,
            2 * ratio,
            0 * one,
            np.nan * one,
            one,
            10.0,
            5.0,
            20.0,
            np.ones(1),
            0.0,
        )

    def adapt(self, measurements: object) -> ModelView:
        return self


class _Third(_Half):
    """Predicts that each setting takes a third."""

    def view(self, graph: Graph, environment: Environment, *, most_loss: float = 0.01) -> ModelView:
        return _HalfView(1 / 3)


@dataclass(frozen=True)
class _Members(CostModel):
    """Predicts what its first member does, as an ensemble of one."""

    members: list[CostModel]
    name: str = "members"

    def view(self, graph: Graph, environment: Environment, *, most_loss: float = 0.01) -> ModelView:
        return self.members[0].view(graph, environment)


@pytest.fixture
def graph() -> Graph:
    tensors = (Tensor((1, 4), "float32"), Tensor((1, 4), "float32"))
    return Graph((Node("Relu", "relu", (0,), (1,)),), tensors, (0,), (1,), 21)


@pytest.fixture
def records(graph: Graph, result: TuneResult) -> Records:
    rows = [replace(row, fingerprint=graph.fingerprint) for row in result.measurements]
    environment = result.environment
    return Records(rows, {graph.fingerprint: graph}, {environment.identity: environment})


def test_a_history_is_predicted_by_the_cost_model(records: Records, tmp_path: Path) -> None:
    with History(tmp_path / "history.db") as history:
        history.import_records(records)
    comparison = compare(tmp_path / "history.db", _Half())
    (model,) = comparison.models
    assert comparison.predictor == "cost model half"
    assert model.notes == ("a test's warning",)
    single = next(pair for pair in model.pairs if str(pair.measurement.route) == "session.threads=2")
    assert single.prediction == RoutePrediction(single.measurement.route, 0.5, 0.25, 1.0, 5.0, 0.0)


def test_parquet_gives_the_same_as_the_database(records: Records, tmp_path: Path) -> None:
    records.write_parquet(tmp_path / "parquet")
    with History(tmp_path / "history.db") as history:
        history.import_records(records)
    one = compare(tmp_path / "history.db", _Half())
    other = compare(tmp_path / "parquet", _Half())
    assert one.overall.routes == other.overall.routes == 5
    assert one.overall.ratio_error == pytest.approx(other.overall.ratio_error, rel=1e-5)


def test_models_of_trained_families_are_marked(records: Records) -> None:
    model = _Half()
    model.familiarity = SimpleNamespace(families=frozenset({"toys"}))  # type: ignore[attr-defined]
    comparison = compare_records(records, model, source="test")
    assert SEEN in comparison.models[0].notes
    assert any("1 of 1" in note for note in comparison.notes)


def test_a_trained_family_is_predicted_by_the_member_that_never_saw_it(records: Records) -> None:
    comparison = compare_records(records, _Members([_Half(), _Third()]), source="test", members={"toys": 1})
    (model,) = comparison.models
    single = next(pair for pair in model.pairs if str(pair.measurement.route) == "session.threads=2")
    assert single.prediction is not None
    assert single.prediction.ratio == pytest.approx(1 / 3)
    assert HELD_OUT in model.notes
    assert any("1 of 1 models: predicted by the member" in note for note in comparison.notes)


def test_models_without_their_graph_are_counted(records: Records) -> None:
    comparison = compare_records(replace(records, graphs={}), _Half(), source="test")
    assert comparison.models == ()
    assert any("1 models were left out" in note for note in comparison.notes)


def test_coverage_counts_the_bounds(measurements: tuple[Measurement, ...]) -> None:
    row = replace(measurements[1], ratio=0.9)
    edge = RoutePrediction(row.route, 0.8, 0.7, 0.9, 8.0, 0.0)
    assert Pair(row, edge).covered is True
    assert Pair(row, replace(edge, ratio_high=math.nextafter(0.9, 0))).covered is False
