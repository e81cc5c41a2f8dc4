"""Gradient boosting on hand-made features of graph, device and route: the strongest of the baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from routecast.costmodel.base import Array
from routecast.costmodel.baselines import RooflineBaseline, Subject
from routecast.costmodel.features import Token, environment_features, graph_features, roofline_ms
from routecast.datasets.environment import Environment
from routecast.datasets.graph import Graph
from routecast.datasets.route import Route

_OPS = 32


class BoostingBaseline(RooflineBaseline):
    """scikit-learn's histogram gradient boosting.

    Features of a route are its settings as zeros and ones and their number, figures of the whole graph, the
    share of each frequent operator type in the roofline time, and the numbers of the device.
    """

    name = "boosting"

    def _learn(self, known: Sequence[Subject]) -> None:
        super()._learn(known)
        ops = Counter(op for subject in known for op in subject.graph.ops)
        self._ops = [op for op, _ in ops.most_common(_OPS)]
        routes = [item.route for subject in known for item in subject.repeats]
        self._columns: dict[Token, int] = {}
        for route in routes:
            for token in route.items():
                self._columns.setdefault(token, len(self._columns))
        self._fit_ratio(known)
        self._fit_failure(known)
        self._fit_default(known)

    def log_ratio(self, graph: Graph, environment: Environment, routes: Sequence[Route]) -> Array:
        """See ``Baseline.log_ratio``."""
        if not routes:
            return np.zeros(0)
        return np.asarray(self._ratio.predict(self._features(graph, environment, routes)), np.float64)

    def failure(self, graph: Graph, environment: Environment, routes: Sequence[Route]) -> Array:
        """See ``Baseline.failure``."""
        if self._failed is None or not routes:
            return super().failure(graph, environment, routes)
        features = self._features(graph, environment, routes)
        return np.asarray(self._failed.predict_proba(features)[:, 1], np.float64)

    def log_default(self, graph: Graph, environment: Environment) -> float:
        """See ``Baseline.log_default``."""
        said = super().log_default(graph, environment)
        if self._default is None:
            return said
        return said + float(self._default.predict(self._subject_features(graph, environment)[None])[0])

    def _fit_ratio(self, known: Sequence[Subject]) -> None:
        timed = [subject for subject in known if subject.timed]
        features = [self._features(s.graph, s.environment, [item.route for item in s.timed]) for s in timed]
        target = np.array([item.log_ratio for subject in timed for item in subject.timed], np.float64)
        weight = np.concatenate([np.full(len(s.timed), 1.0 / len(s.timed)) for s in timed])
        self._ratio = _regressor(10, 200).fit(np.concatenate(features), target, weight / weight.mean())

    def _fit_failure(self, known: Sequence[Subject]) -> None:
        measured = [subject for subject in known if subject.repeats]
        failed = np.array([item.failed >= 0.5 for subject in measured for item in subject.repeats])
        self._failed: HistGradientBoostingClassifier | None = None
        if failed.any() and not failed.all():
            features = [self._features(s.graph, s.environment, [item.route for item in s.repeats]) for s in measured]
            model = HistGradientBoostingClassifier(
                max_iter=100, max_leaf_nodes=15, min_samples_leaf=10, early_stopping=False, random_state=0
            )
            self._failed = model.fit(np.concatenate(features), failed)

    def _fit_default(self, known: Sequence[Subject]) -> None:
        """Learns what the scaled roofline gets wrong."""
        timed = [subject for subject in known if subject.log_default is not None]
        self._default: HistGradientBoostingRegressor | None = None
        if len(timed) > 10:
            features = np.stack([self._subject_features(s.graph, s.environment) for s in timed])
            said = [super(BoostingBaseline, self).log_default(s.graph, s.environment) for s in timed]
            target = np.array([s.log_default for s in timed], np.float64) - said
            self._default = _regressor(4, 60).fit(features, target)

    def _features(self, graph: Graph, environment: Environment, routes: Sequence[Route]) -> Array:
        """Features of R routes, shape (R, settings + 1 + subject features)."""
        settings = np.zeros((len(routes), len(self._columns) + 1))
        for row, route in enumerate(routes):
            settings[row, -1] = len(route)
            for token in route.items():
                column = self._columns.get(token)
                if column is not None:
                    settings[row, column] = 1.0
        subject = self._subject_features(graph, environment)
        return np.concatenate([settings, np.broadcast_to(subject, (len(routes), len(subject)))], axis=1)

    def _subject_features(self, graph: Graph, environment: Environment) -> Array:
        """Features of a graph on a device: of the whole graph, shares of operators, and of the device."""
        times = roofline_ms(graph, environment)
        shares = dict.fromkeys(self._ops, 0.0)
        for node, time in zip(graph.nodes, times, strict=True):
            if node.op in shares:
                shares[node.op] += float(time / times.sum())
        whole = graph_features(graph, environment).summary
        device = environment_features(environment).numbers[0]
        return np.concatenate([whole, np.array(list(shares.values())), device]).astype(np.float64)


def _regressor(leaf: int, rounds: int) -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(
        max_iter=rounds,
        learning_rate=0.08,
        max_leaf_nodes=15,
        min_samples_leaf=leaf,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=0,
    )
