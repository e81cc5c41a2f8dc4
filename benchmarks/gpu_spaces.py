"""What somebody with trtexec alone may try: the rivals' route spaces in ``gpu_tuning.py``.

Only the process that chooses routes sees these backends; what builds and measures is the one they are derived from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from routecast.datasets.model import Model
from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.backends.tensorrt.backend import TensorRtRtx
from routecast.tuner.backends.tensorrt.knobs import GROUP


@dataclass(frozen=True)
class TrtexecSpace(RouteSpace):
    """A route space where one change at a time is a change of one compiler knob on top of a base route.

    Attributes:
        base: the first change, unless it is the default route.
    """

    base: Route = field(default_factory=Route)

    def single_changes(self, route: Route | None = None) -> list[Route]:
        """See ``RouteSpace.single_changes``."""
        if route is not None:
            return super().single_changes(route)
        changed = super().single_changes(self.base)
        compiler = [each for each in changed if any(name.startswith(GROUP) for name in each)]
        return compiler if self.base.is_default else [self.base, *compiler]


class AsTrtexec(TensorRtRtx):
    """Compiler knobs of the network as it is, which is all that trtexec permutes."""

    base: ClassVar[Route] = Route()

    def space(self, model: Model, *, allow_numerics: bool = True) -> RouteSpace:
        """The whole space, walked as trtexec would."""
        whole = super().space(model, allow_numerics=allow_numerics)
        return TrtexecSpace(whole.knobs, whole.left_out, whole.canonical(self.base))


class AsTrtexecInHalf(AsTrtexec):
    """The network converted to fp16, then its compiler knobs."""

    base: ClassVar[Route] = Route({"precision.policy": "fp16"})
