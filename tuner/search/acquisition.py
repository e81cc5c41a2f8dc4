"""Which candidates to measure together: expected improvement of a whole batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np

from routecast.costmodel.base import Array
from routecast.datasets.route import Route
from routecast.tuner.search.pool import Scores

Setting = tuple[str, str]

_SCENARIOS = 256
# How much of a route's surprise it shares with routes of the same settings; the rest is its own.
_SHARED = 0.85


def choose_batch(
    scores: Scores,
    count: int,
    best: float,
    weights: Mapping[Setting, float],
    rng: np.random.Generator,
    exploration: float = 1.0,
) -> list[Route]:
    """Chooses routes whose best member is expected to improve most on what is known.

    The expected improvement of a batch (q-EI: Ginsbourger et al., 2010) is estimated over random scenarios and
    maximised greedily. In a scenario every candidate gets a log ratio drawn from its prediction and either works or
    fails, and candidates that share settings share their luck. So a second route with the same risky precision adds
    little to the first: where that one fails, it fails as well, and a route without it is the better company.

    Args:
        scores: the candidates.
        count: how many to choose; fewer come back when there are fewer candidates.
        best: log ratio to improve on.
        weights: how much sharing a setting ties two routes together; settings not named weigh 1e-3.
        rng: source of the scenarios.
        exploration: factor on the predicted standard deviations; above 1 seeks the uncertain.

    Returns:
        The chosen routes, the one that adds most first.
    """
    if not scores.routes:
        return []
    gains = _gains(scores, best, weights, rng, exploration)
    # Where no scenario improves anything, the better prediction decides.
    tie_break = 1e-6 * (scores.log_ratio + scores.failure)
    reached = np.zeros(gains.shape[1])
    chosen: list[int] = []
    for _ in range(min(count, len(scores.routes))):
        value = np.maximum(gains, reached).mean(axis=1) - tie_break
        value[chosen] = -np.inf
        index = int(np.argmax(value))
        chosen.append(index)
        reached = np.maximum(reached, gains[index])
    return [scores.routes[index] for index in chosen]


def _gains(
    scores: Scores, best: float, weights: Mapping[Setting, float], rng: np.random.Generator, exploration: float
) -> Array:
    """Improvement of R candidates on ``best`` in S scenarios, 0 where they fail or do not improve, shape (R, S)."""
    settings = _settings_matrix(scores.routes, weights)
    luck = _shared_luck(settings, rng)
    log_ratio = scores.log_ratio[:, None] + exploration * scores.std[:, None] * luck
    normal = NormalDist()
    threshold = np.array([normal.inv_cdf(p) for p in np.clip(scores.failure, 1e-6, 1 - 1e-6)])
    works = _shared_luck(settings, rng) > threshold[:, None]
    return np.asarray(works * np.maximum(best - log_ratio, 0.0))


def _settings_matrix(routes: Sequence[Route], weights: Mapping[Setting, float]) -> Array:
    """Rows of unit length, one per route, over the T settings that occur; shape (R, T)."""
    columns: dict[Setting, int] = {}
    for route in routes:
        for setting in route.items():
            columns.setdefault(setting, len(columns))
    matrix = np.zeros((len(routes), len(columns)))
    for row, route in enumerate(routes):
        for setting in route.items():
            matrix[row, columns[setting]] = max(weights.get(setting, 0.0), 1e-3)
    return np.asarray(matrix / np.linalg.norm(matrix, axis=1, keepdims=True))


def _shared_luck(settings: Array, rng: np.random.Generator) -> Array:
    """Standard normal draws, shape (R, S), correlated as the cosine between the settings of two routes.

    Each row holds the same S quantiles of the normal distribution in an order of its own, so that chance does not
    decide between routes whose predictions differ by little.
    """
    shared = settings @ rng.standard_normal((settings.shape[1], _SCENARIOS))
    own = rng.standard_normal((len(settings), _SCENARIOS))
    order = np.argsort(np.argsort(np.sqrt(_SHARED) * shared + np.sqrt(1 - _SHARED) * own, axis=1), axis=1)
    normal = NormalDist()
    quantiles = np.array([normal.inv_cdf((place + 0.5) / _SCENARIOS) for place in range(_SCENARIOS)])
    return np.asarray(quantiles[order])
