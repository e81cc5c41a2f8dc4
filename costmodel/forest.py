"""A forest of extremely randomised trees beside each network (Geurts et al., "Extremely randomized trees", 2006).

A network reads the graph, a forest asks plain questions about it. They err differently, so their mean errs less than
either. The trees live in flat arrays: what is stored is read without running anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from routecast.costmodel.base import Array
from routecast.costmodel.features import GraphFeatures, Integers, TextFeatures, Token
from routecast.costmodel.repeats import LOSS_UNIT
from routecast.costmodel.tabular import Columns


@dataclass(frozen=True)
class Nodes:
    """T binary trees of N nodes in all, each tree in depth-first order: a left child follows its parent.

    Attributes:
        roots: first node of each tree, int32, shape (T,).
        feature: column that a node asks about, -1 in a leaf, int16, shape (N,).
        threshold: up to it the left child follows, float32, shape (N,).
        right: distance to the right child, uint16, shape (N,).
        leaf: log ratio and accuracy loss (in ``LOSS_UNIT``) of each leaf in their order, float16, shape (leaves, 2).
    """

    roots: npt.NDArray[np.int32]
    feature: npt.NDArray[np.int16]
    threshold: npt.NDArray[np.float32]
    right: npt.NDArray[np.uint16]
    leaf: npt.NDArray[np.float16]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by name."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


@dataclass(frozen=True)
class Forest:
    """Trees over the columns of a history.

    Attributes:
        columns: what the trees may ask about.
        nodes: the trees.
    """

    columns: Columns
    nodes: Nodes

    @classmethod
    def read(cls, columns: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Puts stored parts together.

        Raises:
            ValueError: the arrays are not those of trees.
        """
        nodes = Nodes(**{item.name: arrays[item.name] for item in fields(Nodes)})
        children = np.flatnonzero(nodes.feature >= 0)
        reach = children + np.maximum(nodes.right[children].astype(np.int64), 1)
        leaves = len(nodes.feature) - len(children)
        if len(nodes.leaf) != leaves or not len(nodes.roots) or (reach >= len(nodes.feature)).any():
            raise ValueError("trees point outside themselves")
        return cls(Columns.from_json(columns), nodes)

    def of(self, graph: GraphFeatures, device: TextFeatures) -> GraphForest:
        """The forest for one model on one device: every question about those is answered once."""
        nodes, first = self.nodes, self.columns.of_route
        asked = np.flatnonzero(nodes.feature >= first)
        subject = self.columns.subject(graph, device)
        left = subject[nodes.feature[asked] - first] <= nodes.threshold[asked]
        follow = np.arange(len(nodes.feature))
        follow[asked] = np.where(left, asked + 1, asked + nodes.right[asked])
        while not np.array_equal(further := follow[follow], follow):
            follow = further
        return GraphForest(self, follow)


class GraphForest:
    """A forest that has only questions about routes left."""

    def __init__(self, forest: Forest, follow: Integers) -> None:
        """Takes the forest, and where each node leads once all that is known is answered."""
        self._columns = forest.columns
        self._nodes = forest.nodes
        self._follow = follow
        self._leaf = np.cumsum(forest.nodes.feature < 0) - 1

    def score(self, tokens: Sequence[Token], chosen: Integers, lengths: Integers) -> tuple[Array, Array]:
        """Log ratios and accuracy losses of R routes, both of shape (R,); see ``Columns.routes``."""
        rows = self._columns.routes(tokens, chosen, lengths)
        nodes = self._nodes
        place = np.tile(self._follow[nodes.roots], len(rows))
        row = np.repeat(np.arange(len(rows)), len(nodes.roots))
        open_ = np.flatnonzero(nodes.feature[place] >= 0)
        while len(open_):
            at = place[open_]
            left = rows[row[open_], nodes.feature[at]] <= nodes.threshold[at]
            place[open_] = self._follow[np.where(left, at + 1, at + nodes.right[at])]
            open_ = open_[nodes.feature[place[open_]] >= 0]
        mean = nodes.leaf[self._leaf[place]].astype(np.float64).reshape(len(rows), len(nodes.roots), 2).mean(axis=1)
        return mean[:, 0], mean[:, 1] * LOSS_UNIT
