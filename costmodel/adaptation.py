"""Corrects predictions by what was measured of the very model, through the settings that routes share.

Log ratios and accuracy losses. The error of the ensemble on route A, a set of tokens, is a Gaussian process with

    cov(A, B) = s_A s_B ((1 - rho) c(A, B) + rho [A = B])
    c(A, B)   = (sum of v_t over tokens in both) / sqrt(V_A V_B)

where s is the standard deviation of the prediction, v_t the variance of what token t is wrong by, V_A the sum of v_t
over A, and rho the share of the error that no other route tells about: little of an accuracy loss, which the settings
of the arithmetic decide alone; of a latency much under one compiler and little under another, so that several shares
are weighed by how likely they make the evidence.
Without evidence the variance is s^2. With evidence y_i = (measured - predicted)_i of noise variance n_i (from
the measured interval), mean and variance are those of Gaussian process regression (Rasmussen & Williams,
2006, eq. 2.23 and 2.24), and the weight of a share is the marginal likelihood (eq. 2.30).

Failures to build, load or run. Each token fails on its own with probability q_t (noisy-or). q_t has a Beta prior worth
``PRIOR_COUNT`` observations around the predicted failure of the token alone; a route that ended ok clears all
its tokens, one that failed is put down to its tokens in proportion to q_t (expectation maximisation). A
route's new failure is

    1 - (1 - predicted) * product over its tokens of (1 - q_t) / (1 - prior q_t).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from routecast.costmodel.base import Array
from routecast.costmodel.features import Token
from routecast.datasets.route import Route

RATIO_RHOS, LOSS_RHOS = (0.01, 0.1, 0.4), (0.05,)
PRIOR_COUNT = 0.5
_EM_STEPS = 20


@dataclass(frozen=True)
class Evidence:
    """What was measured of n distinct routes, against what was predicted.

    Attributes:
        routes: the routes, none of them the default route.
        error: measured minus predicted, shape (n,).
        noise: standard deviation of what was measured, shape (n,).
        std: standard deviation of the prediction, shape (n,).
        variance: of what each token is wrong by, for every token of these routes.
        rhos: shares of the error that may be a route's own.
    """

    routes: tuple[Route, ...]
    error: Array
    noise: Array
    std: Array
    variance: Mapping[Token, float]
    rhos: tuple[float, ...] = RATIO_RHOS


def posterior(evidence: Evidence, routes: Sequence[Route], std: Array, total: Array) -> tuple[Array, Array]:
    """Posterior of the errors of R routes.

    Args:
        evidence: what was measured.
        routes: the R routes asked about.
        std: standard deviations of their predictions, shape (R,).
        total: V of each route, shape (R,).

    Returns:
        What to add to each prediction, and the standard deviation left, both of shape (R,).
    """
    columns = {token: column for column, token in enumerate(evidence.variance)}
    root = np.sqrt(np.array(list(evidence.variance.values())))
    known, asked = _indicators(evidence.routes, columns) * root, _indicators(routes, columns) * root
    alike, alike_asked = _alike(known, known), _alike(asked, known, total)
    itself, itself_asked = _same(evidence.routes, evidence.routes), _same(routes, evidence.routes)
    found = []
    for rho in evidence.rhos:
        prior = evidence.std[:, None] * evidence.std * np.where(itself, 1.0, (1 - rho) * alike)
        cross = std[:, None] * evidence.std * np.where(itself_asked, 1.0, (1 - rho) * alike_asked)
        found.append(_regression(evidence.error, prior + np.diag(np.square(evidence.noise)), cross, np.square(std)))
    shift, variance, likelihood = (np.stack(values) for values in zip(*found, strict=True))
    weight = np.exp(likelihood - likelihood.max())
    weight /= weight.sum()
    mean = weight @ shift
    return mean, np.sqrt(weight @ (variance + np.square(shift - mean)))


def _regression(error: Array, prior: Array, cross: Array, variance: Array) -> tuple[Array, Array, float]:
    """Mean and variance left of the errors of R routes, and the log of how likely the evidence is, up to a constant.

    Args:
        error: of the n routes measured, shape (n,).
        prior: their covariance with noise, shape (n, n).
        cross: covariance of the R routes with them, shape (R, n).
        variance: of the R routes, shape (R,).
    """
    gain = np.linalg.solve(prior, cross.T).T
    left = variance - np.einsum("rn,rn->r", gain, cross)
    misfit = error @ np.linalg.solve(prior, error) + np.linalg.slogdet(prior).logabsdet
    return gain @ error, np.clip(left, 0.0, None), -misfit / 2


def _same(left: Sequence[Route], right: Sequence[Route]) -> npt.NDArray[np.bool_]:
    """Whether each route on the left is that on the right, of which there are no two alike."""
    place = {route: index for index, route in enumerate(right)}
    found = np.zeros((len(left), len(right)), dtype=bool)
    for row, route in enumerate(left):
        if route in place:
            found[row, place[route]] = True
    return found


def _indicators(routes: Sequence[Route], columns: Mapping[Token, int]) -> Array:
    found = np.zeros((len(routes), len(columns)))
    for row, route in enumerate(routes):
        for token in route.items():
            column = columns.get(token)
            if column is not None:
                found[row, column] = 1.0
    return found


def _alike(left: Array, right: Array, left_total: Array | None = None) -> Array:
    """The c of the module between routes given by the roots of the variances of their tokens."""
    left_total = np.square(left).sum(1) if left_total is None else left_total
    norm = np.sqrt(np.maximum(left_total[:, None] * np.square(right).sum(1), 1e-30))
    alike: Array = left @ right.T / norm
    return alike


def token_failures(
    outcomes: Sequence[tuple[Route, bool]], prior: Mapping[Token, float], count: float = PRIOR_COUNT
) -> dict[Token, float]:
    """Posterior failure probability of each token.

    Args:
        outcomes: measured routes and whether each failed.
        prior: failure probability of each of their tokens alone, in (0, 1).
        count: number of observations that the prior is worth.
    """
    found = dict(prior)
    seen = Counter(token for route, _ in outcomes for token in route.items())
    failed = [tuple(route.items()) for route, failure in outcomes if failure and route]
    for _ in range(_EM_STEPS):
        blame = dict.fromkeys(prior, 0.0)
        for tokens in failed:
            any_fails = 1.0 - math.prod(1.0 - found[token] for token in tokens)
            for token in tokens:
                blame[token] += found[token] / any_fails
        found = {token: min((count * prior[token] + blame[token]) / (count + seen[token]), 0.999) for token in prior}
    return found


def correct_failures(
    failure: Array, routes: Sequence[Route], prior: Mapping[Token, float], posterior: Mapping[Token, float]
) -> Array:
    """New failure probabilities of R routes from the predicted ones, shape (R,)."""
    factor = {token: (1 - posterior[token]) / (1 - prior[token]) for token in prior}
    change = np.array([math.prod(factor.get(token, 1.0) for token in route.items()) for route in routes])
    corrected: Array = np.clip(1 - (1 - failure) * change, 0.0, 1.0)
    return corrected
