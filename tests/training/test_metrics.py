from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routecast.training import metrics

stats = pytest.importorskip("scipy.stats")
LISTS = st.lists(st.integers(-5, 5), min_size=2, max_size=30)


@settings(deadline=None)
@given(LISTS, st.integers(0, 2**32 - 1))
def test_correlations_agree_with_scipy(values: list[int], seed: int) -> None:
    other = np.random.default_rng(seed).integers(-5, 5, len(values))
    if np.ptp(values) == 0 or np.ptp(other) == 0:
        assert np.isnan(metrics.spearman(values, other))
        assert np.isnan(metrics.kendall(values, other))
        return
    assert metrics.spearman(values, other) == pytest.approx(stats.spearmanr(values, other)[0])
    assert metrics.kendall(values, other) == pytest.approx(stats.kendalltau(values, other)[0])


def test_regret_is_what_the_first_k_miss() -> None:
    actual, predicted = [0.8, 1.0, 0.9, 1.2], [4.0, 1.0, 2.0, 3.0]
    assert metrics.regret(actual, predicted, 1) == pytest.approx(0.25)
    assert metrics.regret(actual, predicted, 2) == pytest.approx(0.125)
    assert metrics.regret(actual, predicted, 4) == 0
    assert metrics.regret(actual, predicted, 0, default=1.0) == pytest.approx(0.25)


def test_failed_routes_are_never_the_best() -> None:
    assert metrics.regret([np.nan, 1.1, np.inf], [1.0, 2.0, 3.0], 1, default=1.0) == 0
    assert metrics.regret([np.nan, 0.5], [1.0, 2.0], 1, default=1.0) == pytest.approx(1.0)
    assert np.isnan(metrics.regret([np.nan], [1.0], 1))


def test_top_recall_counts_the_fastest_found() -> None:
    assert metrics.top_recall([1, 2, 3, 4], [1, 3, 2, 4], 2) == 0.5
    assert metrics.top_recall([1, 2], [2, 1], 8) == 1.0


def test_pairwise_accuracy_ignores_pairs_within_the_margin() -> None:
    assert metrics.pairwise_accuracy([0.0, 0.01, 1.0], [1.0, 0.0, 2.0], margin=0.02) == 1.0
    assert metrics.pairwise_accuracy([0.0, 0.01, 1.0], [1.0, 0.0, 2.0]) == pytest.approx(2 / 3)
    assert metrics.pairwise_accuracy([0.0, 1.0], [1.0, 1.0]) == 0.5


def test_errors_coverage_and_failure_figures() -> None:
    assert metrics.mape([1.0, 2.0], [1.1, 1.0]) == pytest.approx(0.3)
    assert metrics.median_ape([1.0, 2.0, 1.0], [1.1, 1.0, 1.2]) == pytest.approx(0.2)
    assert metrics.coverage([1.0, 2.0], [0.5, 2.1], [1.5, 3.0]) == 0.5
    assert metrics.brier([1, 0], [1.0, 0.5]) == pytest.approx(0.125)
    assert metrics.area_under_curve([1, 0, 0, 1], [0.9, 0.1, 0.5, 0.5]) == pytest.approx(0.875)
    assert np.isnan(metrics.area_under_curve([0, 0], [0.1, 0.2]))
