"""What a tune hands back, and whom it tells on the way."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from routecast.costmodel.base import promise
from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.measurement import Measurement
from routecast.datasets.route import Route


@dataclass(frozen=True)
class RoutePrediction:
    """What the cost model said of a route before it was measured.

    Attributes:
        route: the route.
        ratio, ratio_low, ratio_high: latency relative to the default route, with its interval.
        latency_ms: expected latency in ms.
        failure: probability that it does not end ``ok``.
    """

    route: Route
    ratio: float
    ratio_low: float
    ratio_high: float
    latency_ms: float
    failure: float

    @property
    def promise(self) -> float:
        """Expected ratio that trying it leads to: when it fails, the default route is kept; lower is better."""
        return 1.0 + float(promise(self.ratio - 1.0, self.failure))

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form, which ``from_json`` reads."""
        return {**asdict(self), "route": str(self.route)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RoutePrediction:
        """Reads what ``to_json`` wrote."""
        return cls(**{**data, "route": Route.parse(data["route"])})


@dataclass(frozen=True)
class TuneResult:
    """The end of a tune.

    Attributes:
        model_name: name of the model.
        model_path: its ONNX file.
        fingerprint: of its graph.
        environment: where it was measured.
        winner: the route to use; the default route when none is surely faster.
        ratio, ratio_low, ratio_high: its confirmed latency relative to the default route's, 1.0 for the default.
        control_low, control_high: interval of the A/A control, the default route against itself.
        default_ms, latency_ms: latency of the default route and of the winner in ms.
        verdict: one line for people.
        measurements: all measurements in order, the control and confirmations included.
        predictions: made before the route was measured, in the order of asking.
        warnings: why the cost model was out of its depth, if it was.
        cost_model: name of the cost model, empty when the strategy used none.
        strategy: name of the search strategy.
        output: folder of the results.
        artifact: the winner's file in it.
        settings: options of the tune and of its inputs, as JSON values.
        seconds: wall-clock time of this run.
        builds: number of routes explored.
    """

    model_name: str
    model_path: Path
    fingerprint: str
    environment: Environment
    winner: Route
    ratio: float
    ratio_low: float
    ratio_high: float
    control_low: float
    control_high: float
    default_ms: float
    latency_ms: float
    verdict: str
    measurements: tuple[Measurement, ...]
    predictions: tuple[RoutePrediction, ...]
    warnings: tuple[str, ...]
    cost_model: str
    strategy: str
    output: Path
    artifact: Path | None
    settings: Mapping[str, Any]
    seconds: float
    builds: int

    @property
    def speedup(self) -> float:
        """Latency of the default route over the winner's."""
        return 1.0 / self.ratio

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form, which ``from_json`` reads."""
        data = {item.name: getattr(self, item.name) for item in fields(self)}
        return {
            **data,
            "model_path": str(self.model_path),
            "environment": self.environment.to_json(),
            "winner": str(self.winner),
            "measurements": [item.to_json() for item in self.measurements],
            "predictions": [item.to_json() for item in self.predictions],
            "output": str(self.output),
            "artifact": None if self.artifact is None else str(self.artifact),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TuneResult:
        """Reads what ``to_json`` wrote."""
        return cls(
            **{
                **data,
                "model_path": Path(data["model_path"]),
                "environment": Environment.from_json(data["environment"]),
                "winner": Route.parse(data["winner"]),
                "measurements": tuple(Measurement.from_json(item) for item in data["measurements"]),
                "predictions": tuple(RoutePrediction.from_json(item) for item in data["predictions"]),
                "warnings": tuple(data["warnings"]),
                "output": Path(data["output"]),
                "artifact": None if data["artifact"] is None else Path(data["artifact"]),
            }
        )

    def save(self) -> Path:
        """Writes ``result.json`` in the output folder."""
        path = self.output / "result.json"
        path.write_text(json.dumps(self.to_json(), indent=1))
        return path

    @classmethod
    def load(cls, path: Path) -> TuneResult:
        """Reads ``result.json``, or the one in a folder.

        Raises:
            UsageError: it is missing or not the result of a tune.
        """
        path = path / "result.json" if path.is_dir() else path
        try:
            return cls.from_json(json.loads(path.read_text()))
        except FileNotFoundError:
            raise UsageError(f"no tune's result at {path}: it is written when a tune ends") from None
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is not the result of a tune: {error!r}") from None


class Observer:
    """Is told what a tune or a collection does; this one stays silent."""

    def started(self, total: int) -> None:
        """Work begins on ``total`` routes."""

    def stage(self, text: str) -> None:
        """What is being done now, a few words."""

    def note(self, text: str) -> None:
        """Something that people should know, one line."""

    def measured(
        self,
        measurement: Measurement,
        prediction: RoutePrediction | None,
        best: Measurement | None,
        done: int,
        total: int,
    ) -> None:
        """A route has been measured; ``best`` is the fastest so far that is ok."""

    def finished(self) -> None:
        """The work has ended, well or not."""


def best_of(measurements: Sequence[Measurement]) -> Measurement | None:
    """The measurement with the lowest ratio among those that are ok."""
    timed = [item for item in measurements if item.ok and item.ratio is not None]
    return min(timed, key=lambda item: item.ratio or 0.0, default=None)
