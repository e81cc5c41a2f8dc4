"""Simple cost models, always reported beside the learned one: what it has to beat."""

from __future__ import annotations

import math
import zlib
from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Self

import numpy as np

from routecast.costmodel.adaptation import token_failures
from routecast.costmodel.base import MOST_LOSS, Array, CostModel
from routecast.costmodel.baseline_view import BaselineView
from routecast.costmodel.features import Token, roofline_ms
from routecast.costmodel.repeats import Repeats, combine
from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.graph import Graph
from routecast.datasets.measurement import Measurement
from routecast.datasets.records import Records
from routecast.datasets.route import Route
from routecast.datasets.splits import family_folds

_FOLDS = 4
_RIDGE = 0.5


@dataclass(frozen=True)
class Subject:
    """One model in one environment, with what was measured of it.

    Attributes:
        graph, environment, family: which.
        repeats: the routes that were measured, the default route not among them.
        log_default: ln of the default latency in ms, None when unknown.
        gap: ln(end-to-end latency / sum of local times) of the default route, None when not profiled.
    """

    graph: Graph
    environment: Environment
    family: str
    repeats: tuple[Repeats, ...]
    log_default: float | None
    gap: float | None

    @property
    def timed(self) -> list[Repeats]:
        """The routes that have a log ratio."""
        return [item for item in self.repeats if item.log_ratio is not None]


def subjects(records: Records) -> list[Subject]:
    """The models of a history, in the order of their first measurement; those without graph are left out."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for item in records.measurements:
        if item.fingerprint in records.graphs and item.environment in records.environments:
            groups.setdefault((item.fingerprint, item.environment), []).append(item)
    return [
        Subject(
            graph=records.graphs[fingerprint],
            environment=records.environments[environment],
            family=found[0].family,
            repeats=tuple(combine(item for item in found if item.route)),
            log_default=_mean([math.log(item.default_ms) for item in found if item.default_ms]),
            gap=_mean(
                [
                    math.log(item.latency_ms / item.local_sum_ms)
                    for item in found
                    if item.route.is_default and item.latency_ms and item.local_sum_ms
                ]
            ),
        )
        for (fingerprint, environment), found in groups.items()
        if records.graphs[fingerprint].nodes
    ]


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


@dataclass(frozen=True)
class Errors:
    """Errors of logarithms on families held out: root mean square, and the quantile at ``nominal``."""

    std: float
    reach: float

    @classmethod
    def of(cls, errors: Sequence[float], nominal: float) -> Errors:
        """Summarises errors; there may be none, which counts as an error of 1."""
        sizes = np.abs(errors) if len(errors) else np.ones(1)
        std, reach = float(np.sqrt(np.mean(sizes**2))), float(np.quantile(sizes, nominal))
        return cls(max(std, 1e-3), max(reach, 1e-3))


class Baseline(CostModel):
    """A cost model that is fitted in seconds.

    Its intervals are those of its errors on families held out of four further fits. A view of it learns from
    measurements as that of the ensemble does.

    Attributes:
        nominal: share of the truths that its intervals are to hold.
        route_errors, default_errors: of the log ratio and of ln(default latency).
        backends: those that were measured.
        failure_rate: share of the measured routes that failed.
        build_seconds: geometric mean.
        gap: mean gap of the default route.
    """

    nominal = 0.9

    def fit(self, records: Records) -> Self:
        """Learns from a history.

        Raises:
            UsageError: it holds no timed route.
        """
        known = subjects(records)
        if not any(subject.timed for subject in known):
            raise UsageError(f"nothing to fit {self.name} to: the history holds no timed route")
        repeats = [item for subject in known for item in subject.repeats]
        self.backends = frozenset(subject.environment.backend for subject in known)
        self.failure_rate = (sum(item.failed for item in repeats) + 0.5) / (len(repeats) + 1)
        builds = [item.log_build for item in repeats if item.log_build is not None]
        self.build_seconds = math.exp(_mean(builds) or 0.0)
        self.gap = _mean([subject.gap for subject in known if subject.gap is not None]) or 0.0
        self._learn(known)
        self._learn_failures(known)
        self.route_errors, self.default_errors = self._held_out_errors(known)
        return self

    def view(self, graph: Graph, environment: Environment, *, most_loss: float = MOST_LOSS) -> BaselineView:
        """Encodes a graph for a device; failures are those under the limit that the history was collected with."""
        del most_loss
        if not graph.nodes:
            raise UsageError("the model has no operators: there is nothing to predict")
        return BaselineView(self, graph, environment)

    @abstractmethod
    def _learn(self, known: Sequence[Subject]) -> None:
        """Fits what ``log_ratio`` and ``log_default`` need."""

    def _learn_failures(self, known: Sequence[Subject]) -> None:
        """Fits what ``failure`` needs besides ``failure_rate``."""

    @abstractmethod
    def log_ratio(self, graph: Graph, environment: Environment, routes: Sequence[Route]) -> Array:
        """Log ratios of R routes, none of them the default route, shape (R,)."""

    @abstractmethod
    def log_default(self, graph: Graph, environment: Environment) -> float:
        """Ln of the default latency in ms."""

    def failure(self, graph: Graph, environment: Environment, routes: Sequence[Route]) -> Array:
        """Failure probabilities of R routes, shape (R,)."""
        del graph, environment
        return np.full(len(routes), self.failure_rate)

    def _held_out_errors(self, known: Sequence[Subject]) -> tuple[Errors, Errors]:
        """Errors of the log ratio and of ln(default latency) on families that a further fit did not see."""
        families = [subject.family for subject in known]
        several = len(set(families)) > 1
        folds = family_folds(families, _FOLDS) if several else [frozenset(families)]
        on_routes: list[float] = []
        on_defaults: list[float] = []
        for fold in folds:
            held = [subject for subject in known if subject.family in fold]
            rest = [subject for subject in known if subject.family not in fold]
            model = self
            if any(subject.timed for subject in rest):
                model = copy(self)  # what it has encoded is shared
                model._learn(rest)
            for subject in held:
                on_routes.extend(model._errors(subject))
                if subject.log_default is not None:
                    said = model.log_default(subject.graph, subject.environment)
                    on_defaults.append(subject.log_default - said)
        return Errors.of(on_routes, self.nominal), Errors.of(on_defaults, self.nominal)

    def _errors(self, subject: Subject) -> list[float]:
        actual = np.array([item.log_ratio for item in subject.timed], np.float64)
        routes = [item.route for item in subject.timed]
        return [float(error) for error in actual - self.log_ratio(subject.graph, subject.environment, routes)]


class DefaultBaseline(Baseline):
    """Every route is as fast as the default, and every default as fast as the middle one of the history."""

    name = "default"

    def _learn(self, known: Sequence[Subject]) -> None:
        defaults = [subject.log_default for subject in known if subject.log_default is not None]
        self._middle = float(np.median(defaults)) if defaults else 0.0

    def log_ratio(self, graph: Graph, environment: Environment, routes: Sequence[Route]) -> Array:
        """See ``Baseline.log_ratio``."""
        del graph, environment
        return np.zeros(len(routes))

    def log_default(self, graph: Graph, environment: Environment) -> float:
        """See ``Baseline.log_default``."""
        del graph, environment
        return self._middle


class RandomBaseline(DefaultBaseline):
    """Log ratios drawn from the spread of the history; the same route always draws the same."""

    name = "random"

    def _learn(self, known: Sequence[Subject]) -> None:
        super()._learn(known)
        self._spread = float(np.std([item.log_ratio or 0.0 for subject in known for item in subject.timed]))

    def log_ratio(self, graph: Graph, environment: Environment, routes: Sequence[Route]) -> Array:
        """See ``Baseline.log_ratio``."""
        subject = f"{graph.fingerprint} {environment.identity}"
        seeds = [zlib.crc32(f"{subject} {route}".encode()) for route in routes]
        return np.array([self._spread * np.random.default_rng(seed).standard_normal() for seed in seeds])


class RooflineBaseline(Baseline):
    """The roofline model of the default latency, scaled to the history; no route is faster than another."""

    name = "roofline"

    def _learn(self, known: Sequence[Subject]) -> None:
        errors = [
            subject.log_default - _log_roofline(subject.graph, subject.environment)
            for subject in known
            if subject.log_default is not None
        ]
        self._scale = float(np.median(errors)) if errors else 0.0

    def log_ratio(self, graph: Graph, environment: Environment, routes: Sequence[Route]) -> Array:
        """See ``Baseline.log_ratio``."""
        del graph, environment
        return np.zeros(len(routes))

    def log_default(self, graph: Graph, environment: Environment) -> float:
        """See ``Baseline.log_default``."""
        return _log_roofline(graph, environment) + self._scale


def _log_roofline(graph: Graph, environment: Environment) -> float:
    return float(np.log(roofline_ms(graph, environment).sum()))


class PopularityBaseline(RooflineBaseline):
    """What each setting was worth on average: log ratios add up, and each setting fails on its own.

    The worth of a setting is its coefficient in a ridge regression of the measured log ratios on the settings
    of the routes, in which every model of the history weighs the same; settings nobody has measured are worth
    nothing.
    """

    name = "popularity"

    def _learn(self, known: Sequence[Subject]) -> None:
        super()._learn(known)
        self._worth = _additive_worth(known)
        outcomes = [(item.route, item.failed >= 0.5) for subject in known for item in subject.repeats]
        prior = dict.fromkeys((token for route, _ in outcomes for token in route.items()), self.failure_rate)
        self._risk = token_failures(outcomes, prior)

    def log_ratio(self, graph: Graph, environment: Environment, routes: Sequence[Route]) -> Array:
        """See ``Baseline.log_ratio``."""
        del graph, environment
        worth = self._worth
        return np.array([math.fsum(worth.get(token, 0.0) for token in route.items()) for route in routes])

    def failure(self, graph: Graph, environment: Environment, routes: Sequence[Route]) -> Array:
        """See ``Baseline.failure``."""
        del graph, environment
        unknown = self.failure_rate
        return np.array(
            [1 - math.prod(1 - self._risk.get(token, unknown) for token in route.items()) for route in routes]
        )


def _additive_worth(known: Sequence[Subject]) -> dict[Token, float]:
    rows = [(item, len(subject.timed)) for subject in known for item in subject.timed]
    columns: dict[Token, int] = {}
    for item, _ in rows:
        for token in item.route.items():
            columns.setdefault(token, len(columns))
    matrix, target = np.zeros((len(rows), len(columns))), np.zeros(len(rows))
    weight = np.array([1.0 / count for _, count in rows])
    weight *= len(rows) / weight.sum()
    for row, (item, _) in enumerate(rows):
        target[row] = item.log_ratio
        matrix[row, [columns[token] for token in item.route.items()]] = 1.0
    normal = matrix.T @ (matrix * weight[:, None]) + _RIDGE * np.eye(len(columns))
    solution = np.linalg.solve(normal, matrix.T @ (weight * target))
    return {token: float(solution[column]) for token, column in columns.items()}


def baselines() -> list[Baseline]:
    """One of each kind, not yet fitted."""
    from routecast.costmodel.boosting import BoostingBaseline

    return [DefaultBaseline(), RandomBaseline(), RooflineBaseline(), PopularityBaseline(), BoostingBaseline()]
