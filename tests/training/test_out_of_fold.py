from __future__ import annotations

import numpy as np
import pytest

from routecast.datasets.route import Route
from routecast.training.out_of_fold import ModelRows, OutOfFold, RouteRows, figures

NAN = float("nan")


def rows() -> OutOfFold:
    """Two models: ``a`` is ordered rightly, ``b`` wrongly; one route of ``a`` failed."""
    names = ("a", "a", "a", "a", "b", "b")
    actual = np.array([-0.5, 0.0, 0.5, NAN, 0.2, 0.1])
    routes = RouteRows(
        fingerprint=names,
        environment=("e",) * 6,
        model=names,
        family=tuple(f"family-{name}" for name in names),
        routes=tuple(Route({"knob": str(index)}) for index in range(6)),
        member=np.array([0.0] * 4 + [1.0] * 2),
        log_ratio=actual,
        noise=np.full(6, 0.01),
        predicted=np.array([-0.4, 0.0, 0.4, 0.0, 0.1, 0.2]),
        low=np.full(6, -0.45),
        high=np.full(6, 0.45),
        failed=np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0]),
        failure=np.array([0.1, 0.1, 0.1, 0.9, 0.1, 0.1]),
        log_loss=np.zeros(6),
        predicted_loss=np.zeros(6),
        log_build=np.zeros(6),
        predicted_build=np.full(6, np.log(1.5)),
    )
    models = ModelRows(
        fingerprint=("a", "b"),
        environment=("e", "e"),
        model=("a", "b"),
        family=("family-a", "family-b"),
        member=np.array([0.0, 1.0]),
        log_default=np.log([1.0, 2.0]),
        predicted=np.log([1.1, 2.2]),
        low=np.log([1.05, 1.0]),
        high=np.log([2.0, 3.0]),
        gap=np.array([0.1, NAN]),
        predicted_gap=np.array([0.3, 0.0]),
    )
    return OutOfFold(routes, models)


def test_figures_over_all_families() -> None:
    found = figures(rows())
    assert found["spearman"] == pytest.approx(0.0)
    assert found["coverage"] == pytest.approx(3 / 5)
    assert found["failure_auc"] == 1.0
    assert found["build_median_ape"] == pytest.approx(0.5)
    assert found["default_median_ape"] == pytest.approx(0.1)
    assert found["default_coverage"] == 0.5
    assert found["gap_mae_log"] == pytest.approx(0.2)
    assert found["regret_at_8"] == 0


def test_figures_of_one_family() -> None:
    assert figures(rows(), ["family-a"])["spearman"] == pytest.approx(1.0)
    found = figures(rows(), ["family-b"])
    assert found["spearman"] == pytest.approx(-1.0)
    assert "failure_auc" not in found


def test_no_family_gives_no_figures() -> None:
    assert figures(rows(), []) == {}
