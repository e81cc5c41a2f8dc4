"""What every cost model offers: encode a graph once, then score thousands of routes against it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from routecast.datasets.environment import Environment
from routecast.datasets.graph import Graph
from routecast.datasets.measurement import Measurement
from routecast.datasets.route import Route

MOST_LOSS = 1e-2
"""The accuracy limit that histories are collected with."""

Array = npt.NDArray[np.float64]


def promise(change: npt.ArrayLike, failure: npt.ArrayLike) -> Array:
    """What trying routes is expected to change, since one that fails leaves the default route; lower is better.

    Args:
        change: log ratio, or ratio less one, if the route works: a loss counts whole, a gain by its chance.
        failure: probability that it does not.
    """
    return np.maximum(change, 0.0) + (1.0 - np.asarray(failure)) * np.minimum(change, 0.0)


@dataclass(frozen=True)
class Predictions:
    """What a cost model says of R routes of one model.

    Attributes:
        routes: the R routes.
        log_ratio: mean of ln(latency / latency of the default route), shape (R,).
        log_ratio_std: its standard deviation (uncertainty of the model, not noise of the timing), shape (R,).
        ratio_low, ratio_high: calibrated interval of the ratio at the model's nominal coverage, shape (R,).
        failure: probability that the route does not end ``ok`` (fails, crashes or is inaccurate), shape (R,).
        loss: expected accuracy loss (cosine), NaN where the cost model does not tell, shape (R,).
        build_seconds: expected build time in seconds, shape (R,).
        default_ms: expected latency of the default route in ms.
        default_ms_low, default_ms_high: its calibrated interval in ms.
        local_ms: expected local time of each node under the default route in ms, shape (nodes,).
        gap: ln(end-to-end latency / sum of local times) expected under the default route.
    """

    routes: tuple[Route, ...]
    log_ratio: Array
    log_ratio_std: Array
    ratio_low: Array
    ratio_high: Array
    failure: Array
    loss: Array
    build_seconds: Array
    default_ms: float
    default_ms_low: float
    default_ms_high: float
    local_ms: Array
    gap: float

    @property
    def ratio(self) -> Array:
        """Expected latency relative to the default route, shape (R,)."""
        return np.exp(self.log_ratio)

    @property
    def latency_ms(self) -> Array:
        """Expected latency in ms, shape (R,)."""
        return self.default_ms * self.ratio


class ModelView(ABC):
    """One model on one device, as a cost model sees it: encoded once, scored often."""

    @property
    @abstractmethod
    def warnings(self) -> tuple[str, ...]:
        """Why the cost model is out of its depth here, one line each; empty when it is not."""

    @abstractmethod
    def predict(self, routes: Sequence[Route]) -> Predictions:
        """Scores routes in one batch."""

    @abstractmethod
    def adapt(self, measurements: Sequence[Measurement]) -> ModelView:
        """A view corrected by what was measured of this very model; the weights do not change."""


class CostModel(ABC):
    """Predicts what routes of a model will do on a device."""

    name: str

    @abstractmethod
    def view(self, graph: Graph, environment: Environment, *, most_loss: float = MOST_LOSS) -> ModelView:
        """Encodes a graph for a device.

        Args:
            graph: the model's graph.
            environment: the device.
            most_loss: accuracy loss (cosine) above which a route counts as failed.
        """

    def refusal(self, environment: Environment) -> str | None:
        """Why this environment rules the cost model out, one line; None when it does not."""
        del environment
        return None
