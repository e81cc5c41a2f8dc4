from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from routecast.datasets.measurement import Measurement
from routecast.datasets.records import Records
from routecast.datasets.route import Route
from routecast.training.drift import Drift, drifts
from routecast.training.out_of_fold import ModelRows, OutOfFold, RouteRows
from routecast.training.promotion import save_out_of_fold

HELD_OUT_ERROR = 0.1


@dataclass(frozen=True)
class Champion:
    """Members add a shift to what a route is named after; intervals reach 0.2 to either side."""

    members: list[float]

    @property
    def calibrations(self):
        return SimpleNamespace(ratio=SimpleNamespace(nominal=0.9))

    def view(self, graph, environment):
        return self

    def predict(self, routes):
        log_ratio = np.array([float(route["truth"]) for route in routes]) + np.mean(self.members)
        return SimpleNamespace(
            log_ratio=log_ratio, ratio_low=np.exp(log_ratio - 0.2), ratio_high=np.exp(log_ratio + 0.2)
        )


@pytest.fixture
def folder(tmp_path, synthetic):
    """Out-of-fold predictions of a champion that was off by 0.1; family mixer was held out by its member 1."""
    (environment,) = synthetic([], 0, 0).environments
    n, zero = 30, np.zeros(30)
    rows = RouteRows(
        ("f",) * n, (environment,) * n, ("m",) * n, ("mixer",) * n, tuple(Route({"a": str(i)}) for i in range(n)),
        np.ones(n), zero, zero, zero + HELD_OUT_ERROR, *(zero for _ in range(8)),
    )  # fmt: skip
    none = np.zeros(0)
    save_out_of_fold(OutOfFold(rows, ModelRows((), (), (), (), none, none, none, none, none, none, none)), tmp_path)
    return tmp_path


def new_records(synthetic, models: int, routes: int, family: str = "cnn", bad: int = 0) -> Records:
    """Measurements whose route says what was measured; but those of ``bad`` models were 1 more."""
    records = synthetic([family], models, 1)
    (environment,) = records.environments
    like = records.measurements[0]
    records.measurements = [
        timed(like, fingerprint, environment, 0.01 * (number + 1), 1.0 if index < bad else 0.0)
        for index, fingerprint in enumerate(records.graphs)
        for number in range(routes)
    ]
    return records


def timed(like: Measurement, fingerprint: str, environment: str, said: float, more: float) -> Measurement:
    ratio = math.exp(said + more)
    return replace(
        like, fingerprint=fingerprint, environment=environment, route=Route({"truth": repr(said)}), ratio=ratio,
        ratio_low=0.99 * ratio, ratio_high=1.01 * ratio, identity=f"{fingerprint}{said}",
    )  # fmt: skip


def test_errors_twice_as_large_have_drifted(synthetic, folder):
    (found,) = drifts(Champion([0.2, 0.2]), folder, new_records(synthetic, 4, 10))
    assert (found.backend, found.routes, found.models) == ("synthetic", 40, 4)
    assert (found.before, found.now, found.ratio) == pytest.approx((0.1, 0.2, 2.0))
    assert (found.low, found.high) == pytest.approx((2.0, 2.0))
    assert found.coverage == pytest.approx(0.5, abs=0.5)  # each truth lies at the very end of its interval
    assert found.beyond(1.25)
    assert not found.beyond(2.5)
    assert "error of synthetic 2.00 [2.00, 2.00] times that at training" in str(found)


def test_errors_as_small_as_at_training_have_not(synthetic, folder):
    (found,) = drifts(Champion([0.1, 0.1]), folder, new_records(synthetic, 4, 10))
    assert found.ratio == pytest.approx(1.0)
    assert found.coverage == 1.0
    assert not found.beyond(1.25)


def test_a_family_that_was_trained_on_is_predicted_by_the_member_that_did_not_see_it(synthetic, folder):
    records = new_records(synthetic, 4, 10, "mixer")
    (found,) = drifts(Champion([0.0, 0.3]), folder, records)
    assert found.ratio == pytest.approx(3.0)
    (found,) = drifts(Champion([0.3, 0.0]), folder, records)
    assert found.now == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("models", "routes"), [(2, 30), (4, 4)])
def test_little_is_no_evidence(synthetic, folder, models, routes):
    (found,) = drifts(Champion([1.0, 1.0]), folder, new_records(synthetic, models, routes))
    assert found.ratio == pytest.approx(10.0)
    assert math.isnan(found.low)
    assert not found.beyond(1.25)
    assert "[" not in str(found)


def test_two_bad_models_of_five_is_no_evidence(synthetic, folder):
    records = new_records(synthetic, 5, 10, bad=2)
    (found,) = drifts(Champion([0.1, 0.1]), folder, records)
    assert found.low <= found.ratio < found.high
    assert not found.beyond(1.25)


def test_what_cannot_be_compared_is_left_out(synthetic, folder, tmp_path):
    records = new_records(synthetic, 4, 10)
    (key,) = records.environments
    other = replace(records.environments[key], backend="tensorrt")
    foreign = Records(
        [replace(item, environment=other.identity) for item in records.measurements],
        records.graphs,
        {**records.environments, other.identity: other},
    )
    assert drifts(Champion([1.0, 1.0]), folder, foreign) == []  # a backend that the champion never saw
    without_graphs = Records(records.measurements, {}, records.environments)
    assert drifts(Champion([1.0, 1.0]), folder, without_graphs) == []
    empty = tmp_path / "no memory"
    empty.mkdir()
    assert drifts(Champion([1.0, 1.0]), empty, records) == []


def test_failed_routes_have_no_error(synthetic, folder):
    records = new_records(synthetic, 4, 10)
    records.measurements = [replace(item, ratio=None) for item in records.measurements]
    assert drifts(Champion([1.0, 1.0]), folder, records) == []


def test_json_has_every_figure():
    drift = Drift("b", 20, 3, 0.1, 0.2, 2.0, 1.5, 2.5, 0.8, 0.9)
    assert drift.to_json()["ratio"] == 2.0
