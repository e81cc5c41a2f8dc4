"""What a cost model was trained on, so that it can say when it is out of its depth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from routecast.costmodel.features import Token
from routecast.datasets.environment import Environment
from routecast.datasets.graph import Graph

_FEW_MEASUREMENTS, _FEW_MODELS = 200, 5


@dataclass(frozen=True)
class Familiarity:
    """The names that the training history held.

    Attributes:
        ops: operator types.
        settings: route settings, as ``name=value``.
        backends: names of back-ends.
        devices: ``backend/device`` pairs.
        families: architecture families.
        measurements, models: how many.
        spread: standard deviation of the measured log ratios, the prior of a setting nobody has measured.
        calibrated: whether the intervals rest on families that were held out.
    """

    ops: frozenset[str]
    settings: frozenset[str]
    backends: frozenset[str]
    devices: frozenset[str]
    families: frozenset[str]
    measurements: int
    models: int
    spread: float
    calibrated: bool

    def knows(self, token: Token) -> bool:
        """Whether the history held this setting."""
        return f"{token[0]}={token[1]}" in self.settings

    def warnings(self, graph: Graph, environment: Environment) -> tuple[str, ...]:
        """Why predictions for this graph and environment deserve little trust, one line each."""
        found = []
        if self.measurements < _FEW_MEASUREMENTS or self.models < _FEW_MODELS:
            found.append(f"trained on only {self.measurements} measurements of {self.models} models")
        if not self.calibrated:
            found.append("intervals are guesses: the training history has too few families to hold any out")
        if environment.backend not in self.backends:
            seen = ", ".join(sorted(self.backends)) or "none"
            found.append(f"back-end {environment.backend} was never measured (only {seen})")
        elif f"{environment.backend}/{environment.device}" not in self.devices:
            found.append(f"device {environment.device} was never measured with {environment.backend}")
        unknown = sorted(graph.ops - self.ops)
        if unknown:
            share = sum(node.flops for node in graph.nodes if node.op in unknown) / max(graph.flops, 1.0)
            listed = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
            found.append(f"operators never measured: {listed} ({share:.0%} of the model's FLOPs)")
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form, which ``from_json`` reads."""
        return {
            name: sorted(value) if isinstance(value, frozenset) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Familiarity:
        """Reads what ``to_json`` wrote."""
        values: dict[str, Any] = {item.name: data[item.name] for item in fields(cls)}
        values.update({name: frozenset(item) for name, item in values.items() if isinstance(item, list)})
        return cls(**values)
