from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from routecast.costmodel.baselines import DefaultBaseline, PopularityBaseline
from routecast.training.charts import draw
from routecast.training.evaluation import LEARNED, Evaluation, all_figures, baseline_out_of_fold, evaluate
from routecast.training.out_of_fold import ModelRows, OutOfFold, RouteRows

KEYS = ("fingerprint", "environment", "model", "family")


@pytest.fixture
def records(synthetic):
    return synthetic(["cnn", "transformer", "mixer", "unet"], 2, 12)


def held_out(records, error=0.0) -> OutOfFold:
    """Predictions that are right but for ``error``; family f was held out by member f mod 2."""
    families = sorted(records.families())
    rng = np.random.default_rng(0)
    rows = [item for item in records.measurements if item.route]
    first = list({item.fingerprint: item for item in records.measurements}.values())
    truth = np.array([item.log_ratio for item in rows])
    failed = np.array([float(not item.ok) for item in rows])
    predicted = truth + error * rng.standard_normal(len(rows))
    defaults = np.log([item.default_ms for item in first])
    return OutOfFold(
        RouteRows(
            *(tuple(getattr(item, name) for item in rows) for name in KEYS),
            tuple(item.route for item in rows),
            np.array([families.index(item.family) % 2 for item in rows], float),
            truth, np.full(len(rows), 0.01), predicted, predicted - 0.1, predicted + 0.1,
            failed, failed * 0.999, *(np.zeros(len(rows)) for _ in range(4)),
        ),
        ModelRows(
            *(tuple(getattr(item, name) for item in first) for name in KEYS),
            np.array([families.index(item.family) % 2 for item in first], float),
            defaults, defaults, defaults - 0.1, defaults + 0.1, np.zeros(len(first)), np.zeros(len(first)),
        ),
    )  # fmt: skip


def test_right_predictions_have_perfect_figures(records):
    figures = all_figures(held_out(records))
    assert figures["spearman"] == pytest.approx(1.0)
    assert figures["feasible_regret_at_1"] == pytest.approx(0.0)
    assert figures["feasible_top1"] == 1.0
    assert figures["latency_mape"] == pytest.approx(0.0, abs=1e-9)
    assert figures["coverage"] == 1.0
    assert figures["failure_auc"] == 1.0


def test_wrong_predictions_have_worse_figures(records):
    right, wrong = all_figures(held_out(records, 0.05)), all_figures(held_out(records, 1.0))
    assert wrong["spearman"] < right["spearman"]
    assert wrong["feasible_regret_at_1"] > right["feasible_regret_at_1"]
    assert wrong["latency_mape"] > right["latency_mape"]


def test_regret_counts_routes_that_fail_as_of_no_use(records):
    """A route that fails is predicted to be the fastest: choosing it leaves the default route."""
    found = held_out(records)
    failed = found.routes.failed == 1
    rows = replace(found.routes, predicted=np.where(failed, -5.0, found.routes.predicted), failure=0 * failed)
    figures = all_figures(replace(found, routes=rows), "transformer")
    assert figures["feasible_regret_at_1"] > 0.01
    assert all_figures(found, "transformer")["feasible_regret_at_1"] == pytest.approx(0.0)


def test_the_latency_error_includes_that_of_the_default(records):
    found = held_out(records)
    models = replace(found.models, predicted=found.models.log_default + np.log(1.5))
    assert all_figures(replace(found, models=models))["latency_mape"] == pytest.approx(0.5)


def test_baselines_never_see_the_family_they_predict(records):
    """A baseline that remembers which families it was fitted to."""
    seen = []

    class Spy(DefaultBaseline):
        def fit(self, records):
            self.fitted = set(records.families())
            return super().fit(records)

        def view(self, graph, environment):
            family = next(f for p, f in families if p == graph.fingerprint)
            seen.append(family in self.fitted)
            return super().view(graph, environment)

    families = [(item.fingerprint, item.family) for item in records.measurements]
    found = baseline_out_of_fold(records, held_out(records), Spy())
    assert seen == [False] * 8
    assert np.isfinite(found.routes.predicted).all()
    assert np.isfinite(found.models.predicted).all()


def test_evaluate_compares_by_the_same_figures(records):
    found = evaluate(records, held_out(records), lambda: [DefaultBaseline(), PopularityBaseline()])
    assert list(found.figures) == [LEARNED, "default", "popularity"]
    assert found.figures[LEARNED]["spearman"] > found.figures["popularity"]["spearman"] > 0
    assert found.figures["default"]["pairwise_accuracy"] == 0.5
    assert set(found.families["popularity"]) == {"cnn", "transformer", "mixer", "unet"}
    assert (found.models, found.routes) == (8, len(held_out(records).routes))
    assert [row["predictor"] for row in found.rows()] == [LEARNED, "default", "popularity"]
    assert Evaluation.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_a_baseline_that_cannot_be_fitted_is_left_out(records):
    """With one fold that holds every family, nothing is left to fit to."""
    found = held_out(records)
    one = np.zeros(len(found.routes)), np.zeros(len(found.models.fingerprint))
    found = OutOfFold(replace(found.routes, member=one[0]), replace(found.models, member=one[1]))
    assert list(evaluate(records, found, lambda: [PopularityBaseline()]).figures) == [LEARNED]


def test_figures_are_drawn(records, tmp_path):
    found = held_out(records, 0.1)
    paths = draw(evaluate(records, found, lambda: [DefaultBaseline()]), found, tmp_path / "figures")
    assert [path.name for path in paths] == ["predicted_measured.png", "predictors.png", "families.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
