"""What every graph pass offers: the knobs it adds for a graph, and the rewriting itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from onnx import ModelProto

from routecast.datasets.errors import RoutecastError
from routecast.datasets.graph import Graph
from routecast.datasets.route import Route, RouteSpace


class PassFailed(RoutecastError):
    """A pass could not rewrite a graph; the message is one line."""


@dataclass(frozen=True)
class PassContext:
    """What a pass may use besides the model.

    Attributes:
        route: the whole route.
        folder: an existing folder for its files, removed by the caller.
        calibration: input sets, ``.npz`` files with one array per input.
    """

    route: Route
    folder: Path
    calibration: tuple[Path, ...] = ()


class GraphPass(ABC):
    """Rewrites a model without changing what its inputs and outputs are called or mean.

    Attributes:
        name: as ``registry.py`` lists it.
    """

    name: ClassVar[str]

    @abstractmethod
    def space(self, graph: Graph) -> RouteSpace:
        """The knobs it adds for a graph, all of stage ``build``, and why others are left out."""

    @abstractmethod
    def wanted(self, route: Route) -> bool:
        """Whether a route asks for it."""

    @abstractmethod
    def apply(self, model: ModelProto, context: PassContext) -> ModelProto:
        """Rewrites a model, in place or not, as the route says.

        Raises:
            PassFailed: the pass does not fit this model.
        """
