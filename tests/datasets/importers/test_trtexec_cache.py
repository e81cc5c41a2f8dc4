from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from routecast.datasets.importers import Imported
from routecast.datasets.importers.importing import DUPLICATE
from routecast.datasets.importers.rows import TOOL_FAILED
from routecast.datasets.importers.session import DAMAGED, NO_DEFAULT, NOT_A_NUMBER, UNREADABLE_ROUTE
from routecast.datasets.importers.trtexec import NO_DEFAULTS, NO_HEADER
from routecast.datasets.measurement import Status

Load = Callable[..., Imported]


def skipped(imported: Imported) -> dict[str, int]:
    return dict(imported.files[0].skipped)


def test_what_is_set_to_its_default_is_no_setting(load: Load, samples: ModuleType) -> None:
    rows = [samples.row(0, samples.route(), 2.0), samples.row(1, samples.route(kgen__tiling="0"), 1.5)]
    first, second = load([samples.header(), *rows]).records.measurements
    assert first.route.is_default
    assert str(second.route) == "compiler.kgen:tiling=0"
    assert (first.ratio, second.latency_ms, second.default_ms, second.ratio) == (1.0, 1.5, 2.0, 0.75)
    assert second.ratio_low is None
    assert (second.status, second.model, second.run) == (Status.OK, "net", "import:tuned.json")


def test_the_environment_is_the_files_and_the_users(load: Load, samples: ModuleType) -> None:
    imported = load([samples.header(), samples.row(0, samples.route(), 2.0)], backend_version="11.1.0")
    (environment,) = imported.records.environments.values()
    assert (environment.backend, environment.device) == ("tensorrt", "NVIDIA H100 PCIe")
    assert (environment.tuner_version, environment.backend_version) == ("2.19.45", "11.1.0")


def test_without_a_gpu_nothing_is_imported(load: Load, samples: ModuleType) -> None:
    imported = load([samples.header(), samples.row(0, samples.route(), 2.0)], device="")
    assert skipped(imported) == {"it does not say which GPU: name it with --device": 1}
    assert not imported.records.measurements


def test_each_phase_of_a_mixed_search_has_its_own_default(load: Load, samples: ModuleType) -> None:
    faster = samples.route(kgen__tiling="0", conv_lowering="off")
    rows = [
        samples.row(0, samples.route(), 2.0),
        samples.row(1, samples.route(kgen__tiling="0"), 1.0),
        samples.row(0, samples.route(), 4.0),  # the second phase begins: iter is 0 again
        samples.row(1, faster, 3.0),
    ]
    measured = load([samples.header(searching_algorithm="mixed"), *rows]).records.measurements
    assert [item.ratio for item in measured] == [1.0, 0.5, 1.0, 0.75]
    assert [item.default_ms for item in measured] == [2.0, 2.0, 4.0, 4.0]


def test_a_phase_without_a_default_is_compared_with_the_first(load: Load, samples: ModuleType) -> None:
    rows = [samples.row(0, samples.route(), 2.0), samples.row(0, samples.route(kgen__tiling="0"), 1.0)]
    assert [item.ratio for item in load([samples.header(), *rows]).records.measurements] == [1.0, 0.5]


def test_without_the_default_there_is_no_ratio(load: Load, samples: ModuleType) -> None:
    rows = [samples.row(0, samples.route(), None), samples.row(1, samples.route(kgen__tiling="0"), 1.0)]
    imported = load([samples.header(), *rows])
    assert [item.ratio for item in imported.records.measurements] == [None, None]
    assert imported.records.measurements[1].latency_ms == 1.0
    assert imported.files[0].notes == {NO_DEFAULT: 1}


def test_a_failed_accuracy_check_is_no_crash(load: Load, samples: ModuleType) -> None:
    message = "child exited with status 1"
    rows = [
        samples.row(0, samples.route(), 2.0, accuracy_loss={"y": 0.0, "z": 0.001}),
        samples.row(1, samples.route(kgen__tiling="0"), 1.0, error_message=message, accuracy_loss={"y": 0.5, "z": 0.2}),
    ]
    good, bad = load([samples.header(), *rows]).records.measurements
    assert (good.status, dict(good.accuracy)) == (Status.OK, {"l0": 0.001})
    assert (bad.status, dict(bad.accuracy), bad.message) == (Status.INACCURATE, {"l0": 0.5}, message)
    assert (bad.latency_ms, bad.ratio) == (1.0, 0.5)


def test_a_crash_is_a_row(load: Load, samples: ModuleType) -> None:
    (crashed,) = load([samples.header(), samples.row(0, samples.route(), None)]).records.measurements
    assert (crashed.status, crashed.latency_ms, crashed.ratio) == (Status.CRASHED, None, None)
    assert crashed.message == "child killed by signal 11 (Segmentation fault)"


def test_a_failure_after_the_times_is_no_time(load: Load, samples: ModuleType) -> None:
    rows = [samples.row(0, samples.route(), 2.0, error_message="child exited with status 100")]
    (crashed,) = load([samples.header(), *rows]).records.measurements
    assert (crashed.status, crashed.latency_ms) == (Status.CRASHED, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"accuracy_loss": {"y": None}},
        {"accuracy_loss": {"y": 0.1, "z": float("nan")}},
        {
            "crash": True,
            "gpu_time": None,
            "error_message": "failed to parse tuning result JSON: [json.exception.type_error.302] type must be number, "
            "but is null",
        },
    ],
)
def test_a_loss_that_is_not_a_number_is_inaccurate(load: Load, samples: ModuleType, changes: dict[str, object]) -> None:
    (row,) = load([samples.header(), {**samples.row(0, samples.route(), 2.0), **changes}]).records.measurements
    assert (row.status, dict(row.accuracy)) == (Status.INACCURATE, {})
    assert row.message


@pytest.mark.parametrize(
    ("algorithm", "metric"), [("L0", "l0"), ("L1", "l1"), ("L2", "l2"), ("LInf", "lInf"), ("Cosine", "cos")]
)
def test_algorithms_have_the_names_of_routecasts_metrics(
    load: Load, samples: ModuleType, algorithm: str, metric: str
) -> None:
    rows = [samples.row(0, samples.route(), 2.0, accuracy_loss={"y": 0.25})]
    imported = load([samples.header(accuracy_algorithm=algorithm), *rows])
    assert dict(imported.records.measurements[0].accuracy) == {metric: 0.25}


@pytest.mark.parametrize(
    ("options", "changes", "note"),
    [
        ((), {"accuracy_parameter": {"atol": 0.01, "rtol": 1e-5}}, "its tolerances are not the usual 1e-5"),
        ((), {"accuracy_algorithm": "Unknown"}, "accuracy algorithm 'Unknown' is not known"),
        (("--refPair=0", "--refPair=1"), {}, "of several reference pairs only the last one's is recorded"),
    ],
)
def test_a_loss_that_means_something_else_is_left_out(
    load: Load, samples: ModuleType, options: tuple[str, ...], changes: dict[str, object], note: str
) -> None:
    rows = [samples.row(0, samples.route(), 2.0, accuracy_loss={"y": 0.25})]
    imported = load([samples.header(*options, **changes), *rows])
    assert dict(imported.records.measurements[0].accuracy) == {}
    assert imported.files[0].notes == {f"without its loss: {note}": 1}


@pytest.mark.parametrize("time", [0.0, -1.0, float("nan"), float("inf"), None, "1.0", True, 10**400])
def test_times_that_are_none_are_counted(load: Load, samples: ModuleType, time: object) -> None:
    rows = [samples.row(0, samples.route(), 2.0), {**samples.row(1, samples.route(), 1.0), "gpu_time": time}]
    imported = load([samples.header(), *rows])
    assert len(imported.records) == 1
    assert skipped(imported) == {NOT_A_NUMBER: 1}


@pytest.mark.parametrize(
    "line",
    [
        '{"iter": 7, "build_route": "-kgen:til',
        "null",
        "[1]",
        "{}",
        '{"iter": 1, "build_route": 5, "crash": false, "gpu_time": 1.0}',
        '{"iter": 1, "build_route": "", "crash": "no", "gpu_time": 1.0}',
        '{"iter": 1, "build_route": "", "crash": false, "accuracy_loss": 3, "gpu_time": 1.0}',
        "[" * 100_000,
        "\x00\x01\x02",
    ],
)
def test_damaged_lines_are_counted(load: Load, samples: ModuleType, line: str) -> None:
    imported = load([samples.header(), samples.row(0, samples.route(), 2.0), line])
    assert len(imported.records) == 1
    assert skipped(imported) == {DAMAGED: 1}


@pytest.mark.parametrize(
    "build_route", ["-kgen:tiling=[0|1]", "kgen:tiling=0", "-kgen:tiling", "-a=1 -a=2", "--setBuildRoute=x", "-a=b=c"]
)
def test_routes_that_cannot_be_read_are_counted(load: Load, samples: ModuleType, build_route: str) -> None:
    assert skipped(load([samples.header(), samples.row(0, build_route, 2.0)])) == {UNREADABLE_ROUTE: 1}


@pytest.mark.parametrize("message", ["fork() failed: Resource temporarily unavailable", "waitpid() failed: x"])
def test_failures_of_the_tuner_say_nothing_of_a_route(load: Load, samples: ModuleType, message: str) -> None:
    rows = [samples.row(0, samples.route(), None, error_message=message)]
    assert skipped(load([samples.header(), *rows])) == {TOOL_FAILED: 1}


def test_the_same_line_counts_once(load: Load, samples: ModuleType) -> None:
    row = samples.row(1, samples.route(kgen__tiling="0"), 1.0)
    imported = load([samples.header(), samples.row(0, samples.route(), 2.0), row, row, {**row, "gpu_time": 1.1}])
    assert [item.latency_ms for item in imported.records.measurements] == [2.0, 1.0, 1.1]
    assert skipped(imported) == {DUPLICATE: 1}


def test_importing_twice_gives_the_same_measurements(load: Load, samples: ModuleType) -> None:
    rows = [samples.header(), samples.row(0, samples.route(), 2.0), samples.row(1, samples.route(), None)]
    once, again = load(rows), load([*rows, samples.row(2, samples.route(kgen__tiling="0"), 1.0)], name="longer.json")
    known = {item.identity for item in once.records.measurements}
    assert len(known) == 2
    assert len({item.identity for item in again.records.measurements} - known) == 1


def test_a_lost_header_is_said(load: Load, samples: ModuleType) -> None:
    rows = [samples.row(0, samples.route(), 2.0), samples.row(1, samples.route(), None)]
    assert skipped(load(rows)) == {NO_HEADER: 2}


@pytest.mark.parametrize("text", [None, "", 5, "-a=[on|off]"])
def test_a_header_without_defaults_is_said(load: Load, samples: ModuleType, text: object) -> None:
    lines = [samples.header(default_build_route=text), samples.row(0, samples.route(), 2.0)]
    assert skipped(load(lines)) == {NO_DEFAULTS: 1}


def test_caches_may_follow_each_other(load: Load, samples: ModuleType) -> None:
    one = [samples.header(), samples.row(0, samples.route(), 2.0)]
    two = [samples.header("--builderOptimizationLevel=5"), samples.row(0, samples.route(), 1.0)]
    measured = load([*one, *two]).records.measurements
    assert [str(item.route) for item in measured] == ["", "builder.optimization_level=5"]
    assert [item.ratio for item in measured] == [1.0, None]


@pytest.mark.parametrize(
    ("option", "route"),
    [
        ("--builderOptimizationLevel=3", ""),
        ("--builderOptimizationLevel=5", "builder.optimization_level=5"),
        ("--maxAuxStreams=0", "builder.aux_streams=0"),
        ("--maxTactics=20", "builder.max_tactics=20"),
        ("--tilingOptimizationLevel=0", ""),
        ("--tilingOptimizationLevel=2", "builder.tiling=moderate"),
        ("--noTF32", "builder.tf32=off"),
        ("--noCudaGraph", "runtime.cuda_graph=off"),
        ("--iterations=100", ""),
        ("--infStreams=1", ""),
    ],
)
def test_options_that_are_knobs_are_settings(load: Load, samples: ModuleType, option: str, route: str) -> None:
    (row,) = load([samples.header(option), samples.row(0, samples.route(), 2.0)]).records.measurements
    assert str(row.route) == route
    assert row.ratio == (None if route else 1.0)


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--memPoolSize=workspace:64", "option --memPoolSize may change what is built"),
        ("--fp16", "option --fp16 may change what is built"),
        ("--sparsity=enable", "option --sparsity may change what is built"),
        ("--infStreams=2", "several inferences ran at once"),
        ("--tilingOptimizationLevel=9", "option --tilingOptimizationLevel has a value that routecast does not know"),
        ("--maxTactics=a b", "option --maxTactics has a value that routecast does not know"),
        ("--shapes=x:4xn", "its shapes cannot be read"),
        ("--minShapes=x:1x64", "built for a range of shapes"),
        ("net.onnx", "its command line cannot be read"),
    ],
)
def test_what_has_no_route_is_refused(load: Load, samples: ModuleType, option: str, reason: str) -> None:
    lines = [samples.header(option, "--maxShapes=x:4x64"), samples.row(0, samples.route(), 2.0)]
    imported = load(lines)
    (found,) = skipped(imported)
    assert reason in found
    assert not imported.records.measurements


def test_the_command_line_stands_in_for_lost_arguments(load: Load, samples: ModuleType) -> None:
    line = "trtexec --onnx=/a/net.onnx '--tuneBuildRoutes=-a=[on|off] -b=1' --noTF32"
    header = samples.header(command_line=line, argv=None)
    (row,) = load([header, samples.row(0, samples.route(), 2.0)]).records.measurements
    assert str(row.route) == "builder.tf32=off"
    broken = samples.header(command_line="trtexec '--onnx", argv=[])
    assert skipped(load([broken, samples.row(0, samples.route(), 2.0)])) == {"its command line cannot be read": 1}
