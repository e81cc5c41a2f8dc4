"""Fits what stands beside the network of a member: the forest, whose trees scikit-learn grows, and the risks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from routecast.costmodel.features import Floats, Integers
from routecast.costmodel.forest import Forest, Nodes
from routecast.costmodel.repeats import LOSS_UNIT
from routecast.costmodel.risks import Risks
from routecast.costmodel.tabular import Columns
from routecast.training.examples import Example
from routecast.training.store import ExampleStore

if TYPE_CHECKING:
    from sklearn.tree import DecisionTreeRegressor

TREES, LEAF, ASKED = 40, 2, 0.5
"""Trees, routes in a leaf at least, and share of the columns tried at each split."""
MOST_ROUTES = 50_000
"""Routes that a forest learns from at most: more make it larger without making it much better."""


def fit_forest(examples: Sequence[Example], seed: int) -> Forest:
    """Fits a forest to some examples; each example counts the same, however many routes it has.

    Routes that were never timed teach it nothing. One that was ok and whose accuracy loss nobody wrote down counts as
    exact.

    Args:
        examples: at least one.
        seed: of the trees.
    """
    from sklearn.ensemble import ExtraTreesRegressor  # takes seconds to load, and predicting needs none of it

    columns = Columns.of((item.graph for item in examples), (token for item in examples for token in item.tokens))
    rows = np.concatenate([_rows(columns, example) for example in examples])
    targets = np.concatenate([_targets(example) for example in examples])
    weights = np.concatenate([_weights(example) for example in examples])
    known = ~np.isnan(targets[:, 0])
    if not known.any():
        return Forest(columns, flat([]))
    trees = ExtraTreesRegressor(TREES, min_samples_leaf=LEAF, max_features=ASKED, random_state=seed)
    trees.fit(rows[known], targets[known], sample_weight=weights[known])
    return Forest(columns, flat(trees.estimators_))


def fit_risks(examples: Sequence[Example]) -> Risks:
    """Counts over some examples how likely each setting is to break a route."""
    return Risks.fit(
        [
            (route, broken >= 0.5)
            for example in examples
            for route, broken in zip(example.routes, example.broken, strict=True)
            if not np.isnan(broken)
        ]
    )


def enough(store: ExampleStore, places: Integers, seed: int) -> list[Example]:
    """As many examples as have ``MOST_ROUTES`` routes together, drawn at random where there are more.

    Args:
        store: the examples.
        places: which of them, at least one.
        seed: of the draw.
    """
    chosen = places
    if store.routes[places].sum() > MOST_ROUTES:
        order = np.random.default_rng(seed).permutation(places)
        chosen = order[: max(1, int(np.searchsorted(np.cumsum(store.routes[order]), MOST_ROUTES)))]
    return [store[int(place)] for place in chosen]


def _rows(columns: Columns, example: Example) -> Floats:
    routes = columns.routes(example.tokens, example.route_tokens, example.lengths)
    subject = columns.subject(example.graph, example.device)
    return np.concatenate([routes, np.broadcast_to(subject, (len(routes), len(subject)))], axis=1)


def _targets(example: Example) -> Floats:
    """Log ratio and accuracy loss of each route, shape (R, 2)."""
    return np.stack([example.log_ratio, np.nan_to_num(example.log_loss, nan=0.0) / LOSS_UNIT], axis=1)


def _weights(example: Example) -> Floats:
    timed = ~np.isnan(example.log_ratio)
    return np.full(len(timed), 1.0 / max(1, int(timed.sum())), np.float32)


def flat(trees: Sequence[DecisionTreeRegressor]) -> Nodes:
    """Trees as arrays; none at all are one leaf that says nothing changes."""
    found = [_nodes(tree) for tree in trees] or [_LEAF]
    starts = np.cumsum([0, *(len(item.feature) for item in found[:-1])])
    return Nodes(
        roots=starts.astype(np.int32),
        feature=np.concatenate([item.feature for item in found]),
        threshold=np.concatenate([item.threshold for item in found]),
        right=np.concatenate([item.right for item in found]),
        leaf=np.concatenate([item.leaf for item in found]),
    )


def _nodes(tree: DecisionTreeRegressor) -> Nodes:
    grown = tree.tree_
    inner = grown.children_left >= 0
    place = np.arange(grown.node_count)
    if (grown.children_left[inner] != place[inner] + 1).any():
        raise RuntimeError("scikit-learn no longer numbers the nodes of a tree depth first")
    return Nodes(
        roots=np.zeros(1, np.int32),
        feature=np.where(inner, grown.feature, -1).astype(np.int16),
        threshold=grown.threshold.astype(np.float32),
        right=np.where(inner, grown.children_right - place, 0).astype(np.uint16),
        leaf=grown.value[~inner, :, 0].astype(np.float16),
    )


_LEAF = Nodes(
    roots=np.zeros(1, np.int32),
    feature=np.full(1, -1, np.int16),
    threshold=np.zeros(1, np.float32),
    right=np.zeros(1, np.uint16),
    leaf=np.zeros((1, 2), np.float16),
)
