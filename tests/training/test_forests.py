from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor

from routecast.costmodel.forest import Forest
from routecast.costmodel.repeats import LOSS_UNIT
from routecast.costmodel.tabular import Columns
from routecast.datasets.records import Records
from routecast.training import forests
from routecast.training.forests import enough, fit_forest, flat
from routecast.training.trainer import example_store

Generator = Callable[..., Records]


def test_scores_are_those_of_scikit_learn(synthetic: Generator) -> None:
    with example_store(synthetic(["cnn", "mixer"], models=1, routes=30)) as store:
        first, second = store
    columns = Columns.of([first.graph, second.graph], [*first.tokens, *second.tokens])
    rows = columns.routes(first.tokens, first.route_tokens, first.lengths)
    tables = [
        np.hstack([rows, np.tile(columns.subject(item.graph, item.device), (len(rows), 1))]) for item in (first, second)
    ]
    targets = np.random.default_rng(0).normal(size=(2 * len(rows), 2))
    trees = ExtraTreesRegressor(10, min_samples_leaf=2, random_state=0).fit(np.concatenate(tables), targets)
    forest = Forest(columns, flat(trees.estimators_))
    for item, table in zip((first, second), tables, strict=True):
        ratio, loss = forest.of(item.graph, item.device).score(first.tokens, first.route_tokens, first.lengths)
        expected = trees.predict(table)
        assert ratio == pytest.approx(expected[:, 0], abs=2e-3)
        assert loss / LOSS_UNIT == pytest.approx(expected[:, 1], abs=2e-3)


def test_a_forest_learns_what_settings_do(synthetic: Generator) -> None:
    with example_store(synthetic(["cnn", "mixer"], models=3, routes=30)) as store:
        forest = fit_forest(enough(store, np.arange(len(store)), seed=0), seed=0)
        for example in store:
            ratio, _ = forest.of(example.graph, example.device).score(
                example.tokens, example.route_tokens, example.lengths
            )
            known = ~np.isnan(example.log_ratio)
            assert np.corrcoef(ratio[known], example.log_ratio[known])[0, 1] > 0.8


def test_no_trees_say_that_nothing_changes(synthetic: Generator) -> None:
    with example_store(synthetic(["cnn"], models=1, routes=4)) as store:
        example = store[0]
    forest = Forest(Columns.of([example.graph], example.tokens), flat([]))
    ratio, loss = forest.of(example.graph, example.device).score(example.tokens, example.route_tokens, example.lengths)
    assert not ratio.any()
    assert not loss.any()


def test_a_large_history_is_learned_from_in_part(synthetic: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forests, "MOST_ROUTES", 25)
    with example_store(synthetic(["cnn"], models=6, routes=10)) as store:
        part = fit_forest(enough(store, np.arange(6), seed=0), seed=0)
        monkeypatch.setattr(forests, "MOST_ROUTES", 1000)
        assert len(part.nodes.feature) < len(fit_forest(enough(store, np.arange(6), seed=0), seed=0).nodes.feature)
