"""A forest of extremely randomised trees beside each network (Geurts et al., "Extremely randomized trees", 2006).

A network reads the graph, a forest asks plain questions about it. They err differently, so their mean errs less than
either. The trees live in flat arrays: what is stored is read without running anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from routecast.costmodel.base import Array
from routecast.costmodel.features import Floats, GraphFeatures, Integers, TextFeatures, Token
from routecast.costmodel.repeats import LOSS_UNIT
from routecast.costmodel.tabular import Columns

_AT_ONCE = 512
"""Routes that pass a forest together: what is known of them then fits into a processor's cache."""


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


class _Level(NamedTuple):
    """Q questions that lie equally deep, and where their answers lead.

    Attributes:
        asked: place of each question among the nodes, shape (Q,).
        feature: column it asks about, shape (Q,).
        threshold: up to it the answer is left, shape (Q, 1).
        place: of the first left child; those of the other questions follow, then the right children.
    """

    asked: Integers
    feature: npt.NDArray[np.int16]
    threshold: npt.NDArray[np.float32]
    place: int


class GraphForest:
    """What is left of a forest once all that is known of the model and the device is answered: questions about routes.

    The nodes that can still be reached are laid out level by level, those of all trees together. A node is reached by
    the routes that reach its parent and answer its way, so many routes pass a level of all trees in one step.
    """

    def __init__(self, forest: Forest, follow: Integers) -> None:
        """Takes the forest, and where each of its nodes leads once what is known is answered."""
        self._columns = forest.columns
        self._levels: list[_Level] = []
        nodes, order = forest.nodes, [follow[forest.nodes.roots]]
        place = 0  # of the last level's first node
        while len(questions := np.flatnonzero(nodes.feature[order[-1]] >= 0)):
            node = order[-1][questions]
            asked, place = place + questions, place + len(order[-1])
            self._levels.append(_Level(asked, nodes.feature[node], nodes.threshold[node, None], place))
            order.append(follow[np.concatenate([node + 1, node + nodes.right[node]])])
        found = np.concatenate(order)
        self._size = len(found)
        self._leaves = np.flatnonzero(nodes.feature[found] < 0)
        leaf_of_node = np.cumsum(nodes.feature < 0) - 1
        self._values = nodes.leaf[leaf_of_node[found[self._leaves]]].astype(np.float32) / len(nodes.roots)

    def score(self, tokens: Sequence[Token], chosen: Integers, lengths: Integers) -> tuple[Array, Array]:
        """Log ratios and accuracy losses of R routes, both of shape (R,); see ``Columns.routes``."""
        columns = self._columns.routes(tokens, chosen, lengths).T
        parts = [self._means(columns[:, at : at + _AT_ONCE]) for at in range(0, max(len(lengths), 1), _AT_ONCE)]
        means = np.concatenate(parts, axis=1, dtype=np.float64)
        return means[0], means[1] * LOSS_UNIT

    def _means(self, columns: Floats) -> Floats:
        """The mean over all trees of what their leaves say, for columns of shape (columns, R): shape (2, R)."""
        columns = np.ascontiguousarray(columns)
        reached = np.ones((self._size, columns.shape[1]), bool)
        for asked, feature, threshold, place in self._levels:
            above, left = reached[asked], columns[feature] <= threshold
            middle = place + len(asked)
            np.logical_and(above, left, out=reached[place:middle])
            np.greater(above, left, out=reached[middle : middle + len(asked)])
        means: Floats = self._values.T @ reached[self._leaves].astype(np.float32)
        return means
