"""Which candidates to measure together: expected improvement of a whole batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from routecast.costmodel.base import Array
from routecast.datasets.route import Route
from routecast.tuner.search.pool import Scores

Setting = tuple[str, str]

_SCENARIOS = 256
# How much of the luck of a route is that of its settings; the rest is its own. What fails, fails almost
# surely again.
_SHARED_EFFECT, _SHARED_FAILURE = 0.98, 0.995
# Of routes that promise the same, the one that changes less is less likely to surprise and easier to
# understand.
_PER_SETTING = 0.002
# A setting ties routes together by its effect and by this share of its uncertainty, and never less than a
# little.
_UNCERTAINTY_SHARE, _LEAST_WEIGHT = 0.25, 1e-4
# Candidates that are expected to add the same, but for so much of a log ratio and so much of what the best adds, are
# told apart by what was known before anything was measured. Else the noise of what was measured would decide, and a
# tune made again would go another way.
_NEAR, _NEAR_SHARE = 0.01, 0.4


@dataclass(frozen=True)
class Attitude:
    """How to take what a cost model says.

    Attributes:
        std_factor: on the predicted standard deviations; above 1 seeks the uncertain.
        failure_power: of the predicted failure probabilities; below 1 shuns the risky.
    """

    std_factor: float = 1.0
    failure_power: float = 1.0


def choose_batch(
    scores: Scores,
    count: int,
    best: float,
    alone: Scores,
    rng: np.random.Generator,
    *,
    prior: Array | None = None,
    attitude: Attitude = Attitude(),
) -> list[Route]:
    """Chooses routes whose best member is expected to improve most on what is known.

    The expected improvement of a batch (q-EI: Ginsbourger et al., 2010) is estimated over random scenarios
    and maximised greedily. In a scenario every candidate gets a log ratio drawn from its prediction and
    either works or fails, and candidates that share settings share their luck. So a second route with the
    same risky precision adds little to the first: where that one fails, it fails as well, and a route without
        it is the better company.

    Args:
        scores: the candidates.
        count: how many to choose; fewer come back when there are fewer candidates.
        best: log ratio to improve on.
        alone: the same for routes of one setting each: how much that setting decides the fate of routes.
        rng: source of the scenarios.
        prior: log ratios of the candidates as they were predicted before anything was measured, shape (R,); the same
            as those of ``scores`` when None.
        attitude: towards uncertainty and risk.

    Returns:
        The chosen routes, the one that adds most first.
    """
    if not scores.routes:
        return []
    gains = _gains(scores, best, alone, rng, attitude)
    wanted = (scores.log_ratio if prior is None else prior) + _toll(scores.routes)
    # Where no scenario improves anything, the better prediction decides.
    tie_break = 1e-6 * (scores.log_ratio + scores.failure)
    reached = np.zeros(gains.shape[1])
    chosen: list[int] = []
    for _ in range(min(count, len(scores.routes))):
        value = np.maximum(gains, reached).mean(axis=1) - tie_break
        value[chosen] = -np.inf
        most = value.max()
        near = np.flatnonzero(value >= most - min(_NEAR, _NEAR_SHARE * max(most - reached.mean(), 0.0)))
        index = int(near[np.argmin(wanted[near])])
        chosen.append(index)
        reached = np.maximum(reached, gains[index])
    return [scores.routes[index] for index in chosen]


def _gains(scores: Scores, best: float, alone: Scores, rng: np.random.Generator, attitude: Attitude) -> Array:
    """Improvement of R candidates on ``best`` in S scenarios, 0 where there is none, shape (R, S)."""
    effect = np.abs(alone.log_ratio) + _UNCERTAINTY_SHARE * alone.std
    ties = _settings_matrix(scores.routes, _by_setting(alone.routes, effect))
    luck = _shared_luck(ties, _SHARED_EFFECT, rng)
    log_ratio = (scores.log_ratio + _toll(scores.routes))[:, None] + attitude.std_factor * scores.std[:, None] * luck
    normal = NormalDist()
    failure = np.clip(scores.failure**attitude.failure_power, 1e-6, 1 - 1e-6)
    threshold = np.array([normal.inv_cdf(p) for p in failure])
    risk = _settings_matrix(scores.routes, _by_setting(alone.routes, alone.failure**2))
    works = _shared_luck(risk, _SHARED_FAILURE, rng) > threshold[:, None]
    return np.asarray(works * np.maximum(best - log_ratio, 0.0))


def _toll(routes: Sequence[Route]) -> Array:
    """What is added to the log ratio of R routes for their length, shape (R,)."""
    return _PER_SETTING * np.array([len(route) for route in routes])


def _by_setting(routes: Sequence[Route], values: Array) -> dict[Setting, float]:
    """The value of each setting from routes of one setting each."""
    return {setting: float(value) for route, value in zip(routes, values, strict=True) for setting in route.items()}


def _settings_matrix(routes: Sequence[Route], weights: Mapping[Setting, float]) -> Array:
    """A row of unit length per route, with weights at its settings out of all T; shape (R, T)."""
    columns: dict[Setting, int] = {}
    for route in routes:
        for setting in route.items():
            columns.setdefault(setting, len(columns))
    matrix = np.zeros((len(routes), len(columns)))
    for row, route in enumerate(routes):
        for setting in route.items():
            matrix[row, columns[setting]] = max(weights.get(setting, 0.0), _LEAST_WEIGHT) ** 0.5
    return np.asarray(matrix / np.linalg.norm(matrix, axis=1, keepdims=True))


def _shared_luck(settings: Array, share: float, rng: np.random.Generator) -> Array:
    """Standard normal draws, shape (R, S); two routes correlate as ``share`` times the cosine of their rows.

    Each row holds the same S quantiles of the normal distribution in an order of its own, so that chance does
    not decide between routes whose predictions differ by little.
    """
    shared = settings @ rng.standard_normal((settings.shape[1], _SCENARIOS))
    own = rng.standard_normal((len(settings), _SCENARIOS))
    order = np.argsort(np.argsort(np.sqrt(share) * shared + np.sqrt(1 - share) * own, axis=1), axis=1)
    normal = NormalDist()
    quantiles = np.array([normal.inv_cdf((place + 0.5) / _SCENARIOS) for place in range(_SCENARIOS)])
    return np.asarray(quantiles[order])
