"""What a cost model was trained on, so that it can say when it is out of its depth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from routecast.costmodel.features import Token, roofline_ms
from routecast.datasets.environment import INSTRUCTION_SETS, Environment
from routecast.datasets.graph import Graph

_FEW_MEASUREMENTS, _FEW_MODELS = 200, 5
_MUCH_OF_THE_TIME = 0.1
_LIKE = 2.0
_POWER = ("threads", "bandwidth_gbs", "peak_gflops", "streaming_multiprocessors", *INSTRUCTION_SETS)


@dataclass(frozen=True)
class Familiarity:
    """The names that the training history held, and the devices.

    Attributes:
        ops: operator types.
        settings: route settings, as ``name=value``.
        backends: names of back-ends.
        devices: what each device can do, by ``Environment.kind``.
        families: architecture families.
        measurements, models: how many.
        spread: standard deviation of the measured log ratios, the prior of a setting nobody has measured.
        calibrated: whether the intervals rest on families that were held out.
        versions: major and minor versions, as ``1.20``, by back-end; cost models of before this was kept have none.
    """

    ops: frozenset[str]
    settings: frozenset[str]
    backends: frozenset[str]
    devices: Mapping[str, Mapping[str, float]]
    families: frozenset[str]
    measurements: int
    models: int
    spread: float
    calibrated: bool
    versions: Mapping[str, Sequence[str]] = field(default_factory=dict)

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
        elif not self._knows_device(environment):
            device = " with ".join(filter(None, (environment.device, ", ".join(environment.instruction_sets))))
            found.append(f"neither {device} nor a device like it was ever measured with {environment.backend}")
        if refusal := self.refusal(environment):
            found.append(refusal)
        unknown = sorted(graph.ops - self.ops)
        times = roofline_ms(graph, environment)
        share = sum(time for time, node in zip(times, graph.nodes, strict=True) if node.op in unknown) / times.sum()
        if share > _MUCH_OF_THE_TIME:
            listed = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
            found.append(f"operators never measured: {listed} (about {share:.0%} of the model's time)")
        return tuple(found)

    def refusal(self, environment: Environment) -> str | None:
        """Why this back-end's version rules the cost model out, None when it does not.

        A new major or minor version of a compiler chooses other kernels and fusions. A version is only compared where
        both sides are known; see ``of_any_version`` for going on nevertheless.
        """
        seen = self.versions.get(environment.backend, ())
        version = environment.minor_version
        if not seen or not version or version in seen:
            return None
        return f"{environment.backend} {version} was never measured (only {', '.join(seen)})"

    def of_any_version(self) -> Familiarity:
        """The same, with versions of back-ends forgotten: no version is refused."""
        return replace(self, versions={})

    def _knows_device(self, environment: Environment) -> bool:
        """Whether this device was measured with this back-end, or one like it.

        That has the same instruction sets and is as powerful within a factor of 2.
        """
        if environment.kind in self.devices:
            return True
        mine = powers(environment)
        return any(
            device.partition("/")[0] == environment.backend
            and bool(mine)
            and mine.keys() == theirs.keys()
            and all(1 / _LIKE <= mine[name] / theirs[name] <= _LIKE for name in mine)
            for device, theirs in self.devices.items()
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form, which ``from_json`` reads."""
        return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Familiarity:
        """Reads what ``to_json`` wrote."""
        values: dict[str, Any] = {item.name: data[item.name] for item in fields(cls) if item.name != "versions"}
        values.update({name: frozenset(item) for name, item in values.items() if isinstance(item, list)})
        return cls(**values, versions=data.get("versions", {}))


def powers(environment: Environment) -> dict[str, float]:
    """The numbers of an environment that say how powerful the device is, where they are known."""
    return {name: environment.numbers[name] for name in _POWER if environment.numbers.get(name, 0.0) > 0}


def seen_versions(environments: Iterable[Environment]) -> dict[str, list[str]]:
    """Of each back-end, the major and minor versions that occur."""
    seen: dict[str, set[str]] = {}
    for environment in environments:
        if environment.minor_version:
            seen.setdefault(environment.backend, set()).add(environment.minor_version)
    return {backend: sorted(found) for backend, found in sorted(seen.items())}
