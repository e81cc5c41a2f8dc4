from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from routecast.costmodel.adaptation import (
    RATIO_RHOS,
    Evidence,
    correct_failures,
    posterior,
    token_failures,
)
from routecast.datasets.route import Route

A, B, C = ("a", "1"), ("b", "1"), ("c", "1")
VARIANCE = {A: 0.04, B: 0.01, C: 0.01}


def evidence(routes: list[Route], error: list[float], noise: float = 0.01, std: float = 0.2) -> Evidence:
    tokens = dict.fromkeys(token for route in routes for token in route.items())
    return Evidence(
        tuple(routes),
        np.array(error),
        np.full(len(routes), noise),
        np.full(len(routes), std),
        {token: VARIANCE[token] for token in tokens},
    )


def total(routes: list[Route]) -> np.ndarray:
    return np.array([sum(VARIANCE[token] for token in route.items()) for route in routes])


def covariance(left: Route, right: Route, first: float, second: float, rho: float) -> float:
    shared = sum(VARIANCE[token] for token in left.items() if token in right.items())
    cosine = shared / np.sqrt(total([left])[0] * total([right])[0])
    return float(first * second * ((1 - rho) * cosine + rho * (left == right)))


def test_matches_the_formula_written_out() -> None:
    known, asked = [Route([A]), Route([A, B])], [Route([A]), Route([B]), Route([A, C]), Route([C])]
    std = np.array([0.2, 0.1, 0.3, 0.2])
    found = evidence(known, [0.5, -0.1])
    weights, shifts, variances = [], [], []
    for rho in RATIO_RHOS:
        prior = np.array([[covariance(x, y, 0.2, 0.2, rho) for y in known] for x in known]) + 1e-4 * np.eye(2)
        cross = np.array([[covariance(x, y, s, 0.2, rho) for y in known] for x, s in zip(asked, std, strict=True)])
        weights.append(multivariate_normal(np.zeros(2), prior).pdf(found.error))
        shifts.append(cross @ np.linalg.solve(prior, found.error))
        variances.append(std**2 - np.diag(cross @ np.linalg.solve(prior, cross.T)))
    weight = np.array(weights) / sum(weights)
    mean = weight @ np.array(shifts)
    shift, left = posterior(found, asked, std, total(asked))
    assert shift == pytest.approx(mean)
    assert left == pytest.approx(np.sqrt(weight @ np.array(variances) + weight @ (np.array(shifts) - mean) ** 2))


def test_routes_that_err_alike_say_that_what_they_do_not_share_matters_little() -> None:
    known = [Route([A, B]), Route([A, C])]
    std = np.full(1, 0.2)
    alike = posterior(evidence(known, [0.3, 0.3]), [Route([A])], std, total([Route([A])]))[1]
    unlike = posterior(evidence(known, [0.3, -0.3]), [Route([A])], std, total([Route([A])]))[1]
    assert alike[0] < 0.8 * unlike[0]


def test_measured_route_becomes_what_was_measured() -> None:
    routes = [Route([A, B]), Route([A]), Route([C])]
    shift, std = posterior(evidence(routes[:1], [0.3]), routes, np.full(3, 0.2), total(routes))
    assert shift[0] == pytest.approx(0.3, rel=0.01)
    assert std[0] < 0.011
    assert 0.1 < shift[1] < 0.3
    assert std[0] < std[1] < 0.2
    assert shift[2] == 0
    assert std[2] == pytest.approx(0.2)


def test_setting_with_the_larger_uncertainty_takes_more_of_the_error() -> None:
    routes = [Route([A]), Route([B])]
    shift, _ = posterior(evidence([Route([A, B])], [0.3]), routes, np.full(2, 0.2), total(routes))
    assert shift[0] > shift[1] > 0


def test_default_route_stays_at_zero() -> None:
    shift, std = posterior(evidence([Route([A])], [0.3]), [Route()], np.zeros(1), np.zeros(1))
    assert shift[0] == std[0] == 0


def test_failure_raises_the_routes_that_share_the_setting() -> None:
    prior = {A: 0.05, B: 0.05}
    posterior = token_failures([(Route([A]), True), (Route([B]), False)], prior)
    assert posterior[A] > 0.6
    assert posterior[B] < 0.03
    routes = [Route([A, C]), Route([B]), Route([C]), Route()]
    failure = correct_failures(np.array([0.1, 0.1, 0.1, 0.0]), routes, prior, posterior)
    assert failure[0] > 0.6
    assert failure[1] < 0.1
    assert failure[2] == pytest.approx(0.1)
    assert failure[3] == 0


def test_blame_falls_on_the_setting_that_never_worked() -> None:
    prior = dict.fromkeys((A, B, C), 0.05)
    outcomes = [(Route([A, B]), True), (Route([A, C]), True), (Route([B, C]), False)]
    posterior = token_failures(outcomes, prior)
    assert posterior[A] > 0.7
    assert posterior[B] < 0.1
    assert posterior[C] < 0.1


def test_probabilities_stay_probabilities() -> None:
    prior = {A: 0.95}
    posterior = token_failures([(Route([A]), False)] * 5, prior)
    failure = correct_failures(np.array([0.0, 1.0, 0.5]), [Route([A])] * 3, prior, posterior)
    assert np.all((failure >= 0) & (failure <= 1))
