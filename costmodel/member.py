"""One member of an ensemble: a network, a forest and risks that learned from the same families."""

from __future__ import annotations

from dataclasses import dataclass

from routecast.costmodel.forest import Forest
from routecast.costmodel.network import RouteNetwork
from routecast.costmodel.risks import Risks


@dataclass(frozen=True)
class Member:
    """What it says of anything that two of them tell is the mean of both.

    Attributes:
        network: in evaluation mode; it tells everything, and alone times and the default latency.
        forest: the trees, which tell log ratios and accuracy losses.
        risks: they tell how likely a route gives no outputs.
    """

    network: RouteNetwork
    forest: Forest
    risks: Risks
