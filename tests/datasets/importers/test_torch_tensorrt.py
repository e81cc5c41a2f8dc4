from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from routecast.datasets.importers import Imported
from routecast.datasets.importers.rows import CUT_OFF, TOOL_FAILED
from routecast.datasets.importers.session import NOT_A_NUMBER
from routecast.datasets.measurement import Status

Load = Callable[..., Imported]


def test_a_cache_names_no_model(load: Load, samples: ModuleType, network: Path) -> None:
    lines = [samples.torch_header(), samples.row(0, samples.route(), 2.0)]
    (reason,) = load(lines, name="tune.0123.jsonl").files[0].skipped
    assert reason == "no ONNX file is named in it: name it with --model"
    imported = load(lines, name="tune.0123.jsonl", model=network)
    assert imported.files[0].format == "torch-tensorrt-cache"
    (environment,) = imported.records.environments.values()
    assert (environment.backend, environment.tuner_version) == ("torch-tensorrt", "2.19.45")


def test_iterations_are_numbered_through_both_phases(load: Load, samples: ModuleType, network: Path) -> None:
    rows = [
        samples.row(0, samples.route(), 2.0),
        samples.row(1, samples.route(kgen__tiling="0"), 1.0),
        samples.row(2, samples.route(kgen__tiling="0", conv_lowering="off"), 0.5),
        samples.row(1, samples.route(kgen__tiling="0"), 1.5),  # continued: not another phase
    ]
    measured = load([samples.torch_header(), *rows], model=network).records.measurements
    assert [item.ratio for item in measured] == [1.0, 0.5, 0.25, 0.75]


def test_an_inaccurate_route_may_have_no_time(load: Load, samples: ModuleType, network: Path) -> None:
    message = "accuracy threshold exceeded: {'output_0': 0.5}"
    rows = [{**samples.row(0, samples.route(), 1.0), "gpu_time": None, "error_message": message}]
    rows[0]["accuracy_loss"] = {"output_0": 0.5}
    (row,) = load([samples.torch_header(accuracy_algorithm="cos"), *rows], model=network).records.measurements
    assert (row.status, row.latency_ms, dict(row.accuracy)) == (Status.INACCURATE, None, {"cos": 0.5})


def test_what_says_nothing_of_a_route_is_counted(load: Load, samples: ModuleType, network: Path) -> None:
    messages = {
        "child process exceeded remaining tuning_timeout_s and was killed": CUT_OFF,
        "failed to start child process: [Errno 12]": TOOL_FAILED,
        "non-finite gpu_time: nan": NOT_A_NUMBER,
    }
    for message, reason in messages.items():
        lines = [samples.torch_header(), samples.row(0, samples.route(), None, error_message=message)]
        assert load(lines, model=network).files[0].skipped == {reason: 1}
