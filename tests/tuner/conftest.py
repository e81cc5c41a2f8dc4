"""Made-up results that the tests of reports, comparisons and the command line share. Nothing was measured."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from routecast.datasets.environment import Environment
from routecast.datasets.measurement import LocalTime, Measurement, Purpose, Status
from routecast.datasets.route import Route
from routecast.tuner.results import RoutePrediction, TuneResult
from routecast.tuner.tuning import TuneConfig

ENVIRONMENT = Environment(
    backend="onnxruntime",
    backend_version="0.0",
    device="Made-up CPU for tests",
    system="Linux test",
    versions={"onnxslim": "0.0"},
    numbers={"cores": 2.0, "memory_gb": 24.0},
)

# Route, predicted ratio, measured ratio, sum of local times in ms of a default route that takes 10 ms.
ROUTES = [
    ("pass.fuse=on session.threads=2", 0.80, 0.78, 7.0),
    ("session.threads=2", 0.85, 0.86, 6.5),
    ("pass.fuse=on", 0.93, 0.90, 8.2),
    ("session.spinning=off", 1.02, 1.04, 9.6),
    ("session.arena=off", 1.01, 1.25, 9.7),
]


def made_measurement(route: str, ratio: float | None, **values: object) -> Measurement:
    """An ok measurement of a 10 ms model, 2 % of interval to each side."""
    timed = (
        {}
        if ratio is None
        else {
            "latency_ms": 10 * ratio,
            "default_ms": 10.0,
            "ratio": ratio,
            "ratio_low": 0.98 * ratio,
            "ratio_high": 1.02 * ratio,
        }
    )
    defaults = {"status": Status.OK, "model": "toy", "family": "toys", "accuracy": {"cos": 1e-7}}
    merged = {**defaults, **timed, **values}
    return Measurement("f" * 32, Route.parse(route), ENVIRONMENT.identity, **merged)  # type: ignore[arg-type]


def made_profile(total: float) -> tuple[LocalTime, ...]:
    """A local profile of two operators."""
    return LocalTime("conv_0", "Conv", 0.75 * total, 0), LocalTime("relu_0", "Relu", 0.25 * total, 1)


def made_prediction(route: str, ratio: float) -> RoutePrediction:
    """A prediction with 10 % of interval to each side."""
    return RoutePrediction(Route.parse(route), ratio, 0.9 * ratio, 1.1 * ratio, 10.5 * ratio, 0.02)


@pytest.fixture
def measurements() -> tuple[Measurement, ...]:
    """A control, five explored routes, one failure, and the confirmation of the fastest."""
    return (
        made_measurement("", 1.0, purpose=Purpose.CONTROL, local_profile=made_profile(9.0)),
        *(made_measurement(route, ratio, local_profile=made_profile(local)) for route, _, ratio, local in ROUTES),
        made_measurement(
            "precision.policy=int8",
            0.5,
            status=Status.INACCURATE,
            accuracy={"cos": 0.4},
            message="cos 0.4 > 0.01 <in output y>",
        ),
        made_measurement("pass.fuse=on session.threads=2", 0.79, purpose=Purpose.CONFIRM),
    )


@pytest.fixture
def predictions() -> tuple[RoutePrediction, ...]:
    """Of the explored routes."""
    return (
        *(made_prediction(route, ratio) for route, ratio, _, _ in ROUTES),
        made_prediction("precision.policy=int8", 0.6),
    )


@pytest.fixture
def result(
    tmp_path: Path, measurements: tuple[Measurement, ...], predictions: tuple[RoutePrediction, ...]
) -> TuneResult:
    """A tune of the toy model that found a faster route."""
    return TuneResult(
        model_name="toy",
        model_path=tmp_path / "toy.onnx",
        fingerprint="f" * 32,
        environment=ENVIRONMENT,
        winner=Route.parse("pass.fuse=on session.threads=2"),
        ratio=0.79,
        ratio_low=0.774,
        ratio_high=0.806,
        control_low=0.99,
        control_high=1.008,
        default_ms=10.0,
        latency_ms=7.9,
        verdict="1.27x the speed of the default route (95 % interval 1.24x to 1.29x)",
        measurements=measurements,
        predictions=predictions,
        warnings=("made-up warning about <operators>",),
        cost_model="test",
        strategy="model",
        output=tmp_path,
        artifact=tmp_path / "model.onnx",
        settings={**asdict(TuneConfig(builds=6)), "shapes": {"x": [1, 3]}, "inputs": [], "ranges": {}},
        seconds=61.0,
        builds=6,
    )
