"""One member of an ensemble: a network and a forest that learned from the same families."""

from __future__ import annotations

from dataclasses import dataclass

from routecast.costmodel.forest import Forest
from routecast.costmodel.network import RouteNetwork


@dataclass(frozen=True)
class Member:
    """What it says of log ratios and accuracy losses is the mean of both.

    Attributes:
        network: in evaluation mode; it alone predicts times, failures and the default latency.
        forest: the trees.
    """

    network: RouteNetwork
    forest: Forest
