"""Gradient boosting on hand-made features of graph, device and route: the strongest of the baselines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from routecast.costmodel.base import Array
from routecast.costmodel.baselines import RooflineBaseline, Subject
from routecast.costmodel.features import (
    Floats,
    GraphFeatures,
    TextFeatures,
    environment_features,
    for_environment,
    graph_features,
)
from routecast.costmodel.tabular import Columns
from routecast.datasets.environment import Environment
from routecast.datasets.graph import Graph
from routecast.datasets.route import Route


class BoostingBaseline(RooflineBaseline):
    """scikit-learn's histogram gradient boosting.

    Features are those of ``tabular``: the settings of the route, figures of the graph, numbers of the device.
    """

    name = "boosting"

    def __init__(self) -> None:
        """Has nothing to predict from until it is fitted."""
        self._known_graphs: dict[str, GraphFeatures] = {}
        self._known_features: dict[tuple[str, str], tuple[GraphFeatures, TextFeatures]] = {}

    def _learn(self, known: Sequence[Subject]) -> None:
        super()._learn(known)
        tokens = [token for subject in known for item in subject.repeats for token in item.route.items()]
        graphs = [self._encoded(subject.graph, subject.environment)[0] for subject in known]
        self._columns = Columns.of(graphs, tokens)
        self._fit_ratio(known)
        self._fit_default(known)

    def _learn_failures(self, known: Sequence[Subject]) -> None:
        measured = [subject for subject in known if subject.repeats]
        failed = np.array([item.failed >= 0.5 for subject in measured for item in subject.repeats])
        self._failed: HistGradientBoostingClassifier | None = None
        if failed.any() and not failed.all():
            features = [self._features(s.graph, s.environment, [item.route for item in s.repeats]) for s in measured]
            model = HistGradientBoostingClassifier(
                max_iter=100, max_leaf_nodes=15, min_samples_leaf=10, early_stopping=False, random_state=0
            )
            self._failed = model.fit(np.concatenate(features), failed)

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

    def _fit_default(self, known: Sequence[Subject]) -> None:
        """Learns what the scaled roofline gets wrong."""
        timed = [subject for subject in known if subject.log_default is not None]
        self._default: HistGradientBoostingRegressor | None = None
        if len(timed) > 10:
            features = np.stack([self._subject_features(s.graph, s.environment) for s in timed])
            said = [super(BoostingBaseline, self).log_default(s.graph, s.environment) for s in timed]
            target = np.array([s.log_default for s in timed], np.float64) - said
            self._default = _regressor(4, 60).fit(features, target)

    def _features(self, graph: Graph, environment: Environment, routes: Sequence[Route]) -> Floats:
        """Features of R routes, shape (R, columns)."""
        tokens = tuple(dict.fromkeys(token for route in routes for token in route.items()))
        places = {token: place for place, token in enumerate(tokens)}
        chosen = np.array([places[token] for route in routes for token in route.items()], np.int64)
        settings = self._columns.routes(tokens, chosen, np.array([len(route) for route in routes], np.int64))
        subject = self._subject_features(graph, environment)
        return np.concatenate([settings, np.broadcast_to(subject, (len(routes), len(subject)))], axis=1)

    def _subject_features(self, graph: Graph, environment: Environment) -> Floats:
        """Features of a graph on a device."""
        return self._columns.subject(*self._encoded(graph, environment))

    def _encoded(self, graph: Graph, environment: Environment) -> tuple[GraphFeatures, TextFeatures]:
        """Features of a graph and a device, computed once: several fits ask for the same ones."""
        key = (graph.fingerprint, environment.identity)
        if key not in self._known_features:
            elsewhere = self._known_graphs.get(graph.fingerprint)
            found = for_environment(elsewhere, graph, environment) if elsewhere else graph_features(graph, environment)
            self._known_graphs[graph.fingerprint] = found
            self._known_features[key] = found, environment_features(environment)
        return self._known_features[key]


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
