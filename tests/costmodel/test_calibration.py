from __future__ import annotations

import json

import numpy as np
import pytest

from routecast.costmodel.calibration import Calibration, cross_bounds


def simulate(rows: int, rng: np.random.Generator, spread: float = 0.1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictions of 5 members, whose errors share one part and differ in another, the truth, and a member each."""
    truth = rng.normal(size=rows) * 0.3
    scale = 0.02 + spread * np.abs(truth)
    shared = rng.normal(size=rows)
    members = truth + scale * (0.9 * shared + 0.4 * rng.normal(size=(5, rows)))
    return members, truth, rng.integers(5, size=rows)


def test_intervals_hold_what_they_promise() -> None:
    rng = np.random.default_rng(0)
    members, truth, owner = simulate(4000, rng)
    fitted = Calibration.fit(members[owner, np.arange(4000)], truth, nominal=0.9, scaled=True)
    new, target, _ = simulate(4000, rng)
    bounds = fitted.bounds(new)
    inside = (target >= bounds.low) & (target <= bounds.high)
    assert 0.88 <= inside.mean() <= 0.95
    large = np.abs(bounds.mean) > 0.3
    assert inside[large].mean() > 0.85
    assert (bounds.high - bounds.low)[large].mean() > 1.5 * (bounds.high - bounds.low)[~large].mean()


def test_disagreement_widens() -> None:
    fitted = Calibration.guess(0.05, nominal=0.9)
    agree, differ = np.zeros((5, 1)), np.linspace(-1, 1, 5)[:, None]
    narrow, wide = fitted.bounds(agree), fitted.bounds(differ)
    assert wide.high[0] - wide.low[0] > 5 * (narrow.high[0] - narrow.low[0])
    assert wide.std[0] > 5 * narrow.std[0]


def test_extra_uncertainty_widens_around_the_same_mean() -> None:
    fitted = Calibration.guess(0.05, nominal=0.9)
    plain, more = fitted.bounds(np.full((3, 1), 0.2)), fitted.bounds(np.full((3, 1), 0.2), np.array([0.5]))
    assert more.mean == plain.mean
    assert more.low < plain.low < plain.mean < plain.high < more.high
    assert more.std[0] == pytest.approx(np.hypot(plain.std[0], 0.5))


def test_cross_bounds_do_not_look_at_their_own_fold() -> None:
    predicted = np.zeros(200)
    fold = np.repeat([0, 1], 100)
    actual = np.where(fold == 0, 0.01, 1.0) * np.random.default_rng(0).normal(size=200)
    low, high = cross_bounds(predicted, actual, fold, nominal=0.9, scaled=True)
    assert high[0] > 1.0
    assert high[-1] < 0.1
    assert np.all(low < high)


def test_cross_bounds_need_two_folds() -> None:
    low, high = cross_bounds(np.zeros(3), np.ones(3), np.zeros(3), nominal=0.9, scaled=False)
    assert np.isnan(low).all()
    assert np.isnan(high).all()


def test_json_round_trip() -> None:
    fitted = Calibration.guess(0.1, nominal=0.8)
    assert Calibration.from_json(json.loads(json.dumps(fitted.to_json()))) == fitted
