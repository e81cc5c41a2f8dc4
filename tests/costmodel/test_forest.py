from __future__ import annotations

import numpy as np
import pytest

from routecast.costmodel.ensemble import Ensemble
from routecast.costmodel.features import environment_features, graph_features
from routecast.costmodel.forest import Forest
from routecast.costmodel.tabular import Columns
from routecast.datasets.environment import Environment
from routecast.datasets.graph import Graph

TOKEN = ("session.threads", "1")


def test_stored_forest_is_read_back(ensemble: Ensemble, graph: Graph, environment: Environment) -> None:
    forest = ensemble.members[0].forest
    again = Forest.read(forest.columns.to_json(), forest.nodes.arrays())
    asked = (TOKEN,), np.array([0]), np.array([0, 1])
    ratio, loss = again.of(graph_features(graph, environment), environment_features(environment)).score(*asked)
    assert ratio == pytest.approx([0.0, -0.1], abs=1e-3)
    assert loss == pytest.approx([0.0, 5.0])


def test_setting_without_a_column_is_only_counted(graph: Graph, environment: Environment) -> None:
    columns = Columns.of([graph_features(graph, environment)], [TOKEN])
    rows = columns.routes((TOKEN, ("new.knob", "on")), np.array([0, 1, 1]), np.array([2, 1, 0]))
    assert rows.tolist() == [[1, 2], [0, 1], [0, 0]]


def test_shares_of_operators_are_those_of_their_time(graph: Graph, environment: Environment) -> None:
    features = graph_features(graph, environment)
    columns = Columns.of([features], [])
    shares = columns.subject(features, environment_features(environment))[len(features.summary) :][: len(columns.ops)]
    assert shares.sum() == pytest.approx(1.0)
    assert sorted(shares)[0] > 0
