"""How likely each setting is to break a route, counted over a history: settings that hardly any network tells about.

A network learns slowly from what is rare. Most settings never break anything, a few do wherever they act at all, and
those are counted soon.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from routecast.costmodel.adaptation import token_failures
from routecast.costmodel.base import Array
from routecast.costmodel.features import Token
from routecast.datasets.route import Route

UNKNOWN, COUNT = 0.05, 2.0
"""The probability of a setting nobody has measured, and how many routes that were measured it weighs as much as."""


@dataclass(frozen=True)
class Risks:
    """Each setting breaks a route on its own (noisy-or; see ``adaptation``).

    Attributes:
        of: probability that each setting breaks a route.
    """

    of: Mapping[Token, float]

    @classmethod
    def fit(cls, outcomes: Sequence[tuple[Route, bool]]) -> Self:
        """Counts routes and whether each gave no outputs."""
        prior = dict.fromkeys((token for route, _ in outcomes for token in route.items()), UNKNOWN)
        return cls(token_failures(outcomes, prior, COUNT))

    def survival(self, tokens: Iterable[Token]) -> Array:
        """Ln of the probability that each of T settings breaks nothing, shape (T,); those of a route add up."""
        return np.log1p(-np.array([self.of.get(token, UNKNOWN) for token in tokens], np.float64))

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form, which ``from_json`` reads."""
        return {"=".join(token): round(risk, 5) for token, risk in sorted(self.of.items())}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Reads what ``to_json`` wrote."""
        return cls(
            {(name, value): float(risk) for text, risk in data.items() for name, _, value in [text.partition("=")]}
        )
