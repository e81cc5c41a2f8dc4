from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from routecast.datasets.measurement import Measurement
from routecast.tuner.progress import TerminalProgress, describe, duration
from routecast.tuner.results import RoutePrediction


def _watch(measurements: tuple[Measurement, ...], predictions: tuple[RoutePrediction, ...], *, terminal: bool) -> str:
    stream = io.StringIO()
    progress = TerminalProgress(Console(file=stream, force_terminal=terminal, width=100, color_system=None))
    progress.started(3)
    progress.stage("A/A control of [model]")
    for done, row in enumerate(measurements[1:4], 1):
        progress.measured(row, predictions[done - 1], measurements[1], done, 3)
    progress.finished()
    return stream.getvalue()


def test_without_a_terminal_there_is_a_line_per_route_and_one_with_the_best_and_time_left(
    measurements: tuple[Measurement, ...], predictions: tuple[RoutePrediction, ...]
) -> None:
    lines = _watch(measurements, predictions, terminal=False).splitlines()
    assert lines[0] == "[1/3] pass.fuse=on session.threads=2: 0.780 [0.764, 0.796], predicted 0.800"
    assert lines[1] == "    best so far: 0.780, about 0 s left"
    assert len(lines) == 6


def test_a_terminal_shows_a_bar_with_stage_best_and_time_left(
    measurements: tuple[Measurement, ...], predictions: tuple[RoutePrediction, ...]
) -> None:
    shown = _watch(measurements, predictions, terminal=True)
    for text in ("[3/3]", "3/3", "best so far: 0.780", "A/A control of [model]"):
        assert text in shown, text


def test_the_time_left_counts_only_what_this_run_measured(
    measurements: tuple[Measurement, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100.0, 110.0, 120.0])
    monkeypatch.setattr("routecast.tuner.progress.time.monotonic", lambda: next(clock))
    stream = io.StringIO()
    progress = TerminalProgress(Console(file=stream, width=100))
    progress.started(10)
    # A resumed tune: four of ten were measured before.
    progress.measured(measurements[1], None, None, 5, 10)
    progress.measured(measurements[1], None, None, 6, 10)
    assert "best so far: default, about 50 s left" in stream.getvalue()
    assert "about 40 s left" in stream.getvalue()


def test_a_failure_is_described_by_status_and_message(measurements: tuple[Measurement, ...]) -> None:
    text = describe(measurements[6], None, 6, 8)
    assert text == "[6/8] precision.policy=int8: inaccurate (cos 0.4 > 0.01 <in output y>)"
    bare = replace(measurements[1], ratio_low=None, ratio_high=None)
    assert describe(bare, None, 1, 8) == "[1/8] pass.fuse=on session.threads=2: 0.780"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (300, "5 min"), (5399, "90 min"), (9000, "2.5 h")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_lines_name_the_model_when_there_are_several(measurements: tuple[Measurement, ...]) -> None:
    stream = io.StringIO()
    progress = TerminalProgress(Console(file=stream, width=100), several_models=True)
    progress.started(2)
    progress.measured(measurements[1], None, None, 1, 2)
    assert stream.getvalue().startswith("toy [1/2] pass.fuse=on")
