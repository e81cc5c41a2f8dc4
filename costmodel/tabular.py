"""Routes of a model on a device as rows of a table: what the trees of a forest ask about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from routecast.costmodel.features import Floats, GraphFeatures, Integers, TextFeatures, Token

_OPS = 32


@dataclass(frozen=True)
class Columns:
    """The columns: one per setting, the number of settings, and those that describe model and device.

    Attributes:
        settings: the settings that have a column, which is 1 where a route has the setting.
        ops: operator types, as buckets of their names, whose share of the roofline time has a column.
    """

    settings: tuple[Token, ...]
    ops: tuple[int, ...]

    @classmethod
    def of(cls, graphs: Iterable[GraphFeatures], tokens: Iterable[Token]) -> Self:
        """The columns of a history: every setting, and the operator types that most graphs have."""
        ops = Counter(int(op) for graph in graphs for op in np.unique(graph.texts[:, 0]))
        return cls(tuple(dict.fromkeys(tokens)), tuple(op for op, _ in ops.most_common(_OPS)))

    @property
    def of_route(self) -> int:
        """How many columns describe the route; they come first."""
        return len(self.settings) + 1

    @cached_property
    def _places(self) -> Mapping[Token, int]:
        return {token: place for place, token in enumerate(self.settings)}

    def routes(self, tokens: Sequence[Token], chosen: Integers, lengths: Integers) -> Floats:
        """The columns of R routes, shape (R, of_route); settings that have no column are only counted.

        Args:
            tokens: distinct tokens.
            chosen: indices into them, route after route.
            lengths: number of settings of each route, shape (R,).
        """
        places = np.array([self._places.get(token, -1) for token in tokens], np.int64)[chosen]
        owner = np.repeat(np.arange(len(lengths)), lengths)
        rows = np.zeros((len(lengths), self.of_route), np.float32)
        rows[owner[places >= 0], places[places >= 0]] = 1.0
        rows[:, -1] = lengths
        return rows

    def subject(self, graph: GraphFeatures, device: TextFeatures) -> Floats:
        """The columns of a model on a device, shape (columns,)."""
        times = np.exp(graph.roofline.astype(np.float64))
        shares = np.bincount(graph.texts[:, 0], weights=times / times.sum(), minlength=max(self.ops, default=0) + 1)
        return np.concatenate([graph.summary, shares[list(self.ops)], device.numbers[0]]).astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form, which ``from_json`` reads."""
        return {"settings": [list(token) for token in self.settings], "ops": list(self.ops)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Reads what ``to_json`` wrote."""
        return cls(tuple((name, value) for name, value in data["settings"]), tuple(data["ops"]))
