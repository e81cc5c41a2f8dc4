from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from routecast.datasets.importers import Imported, ImportRequest, import_files
from routecast.datasets.importers.session import NO_DEFAULT, NOT_A_NUMBER, UNSTABLE
from routecast.datasets.importers.trtexec_log import NO_BANNER, NO_END, NOT_STARTED, NOTHING_TIMED
from routecast.datasets.measurement import Status

Load = Callable[..., Imported]


@pytest.fixture
def read(load: Load) -> Callable[..., Imported]:
    """Imports a log that must tell its GPU itself."""

    def read(lines: list[str], **request: object) -> Imported:
        return load("\n".join(lines), name="run.log", **{"device": "", **request})

    return read


def test_a_run_tells_everything(read: Load, samples: ModuleType) -> None:
    imported = read(samples.run_log("--onnx=/else/net.onnx"))
    (row,) = imported.records.measurements
    assert (row.status, row.latency_ms, row.ratio) == (Status.OK, 1.25, 1.0)
    assert (row.build_seconds, row.load_seconds) == (7.97911, 0.00743164)
    (environment,) = imported.records.environments.values()
    assert (environment.device, environment.backend_version) == ("NVIDIA H100 PCIe", "11.1.0")
    assert environment.numbers == {
        "compute_capability": 9.0, "streaming_multiprocessors": 114.0, "memory_gb": 79.171, "clock_mhz": 1755.0,
        "memory_clock_mhz": 1593.0, "bandwidth_gbs": 2039.04,
    }  # fmt: skip
    assert len(environment.host) == 12


def test_a_gpu_that_the_user_names_has_no_recorded_numbers(read: Load, samples: ModuleType) -> None:
    (environment,) = read(samples.run_log("--onnx=net.onnx"), device="NVIDIA H200").records.environments.values()
    assert (environment.device, environment.numbers, environment.host) == ("NVIDIA H200", {}, "")


def test_a_pinned_route_has_no_ratio(read: Load, samples: ModuleType) -> None:
    imported = read(samples.run_log("--onnx=net.onnx", "--setBuildRoute=-kgen:tiling=1 -concat_elim=off"))
    (row,) = imported.records.measurements
    assert str(row.route) == "compiler.concat_elim=off compiler.kgen:tiling=1"
    assert row.ratio is None
    assert imported.files[0].notes == {NO_DEFAULT: 1}


@pytest.mark.parametrize(
    ("version", "option", "route", "digits"),
    [
        ("110100", "--verbose", "", "11.1.0"),
        ("110100", "--noCudaGraph", "runtime.cuda_graph=off", "11.1.0"),
        ("100700", "--verbose", "runtime.cuda_graph=off", "10.7.0"),
        ("100700", "--useCudaGraph", "", "10.7.0"),
        ("8601", "--useCudaGraph", "", "8.6.1"),
    ],
)
def test_the_version_decides_about_the_cuda_graph(
    read: Load, samples: ModuleType, version: str, option: str, route: str, digits: str
) -> None:
    lines = samples.run_log("--onnx=net.onnx", option, version=version)
    imported = read([line for line in lines if "TensorRT version" not in line])
    assert str(imported.records.measurements[0].route) == route
    (environment,) = imported.records.environments.values()
    assert environment.backend_version == digits


def test_a_graph_that_could_not_be_captured_is_none(read: Load, samples: ModuleType) -> None:
    said = "The CUDA graph capture has failed. The inference will be launched without using CUDA graph."
    lines = samples.run_log("--onnx=net.onnx")
    imported = read([*lines[:-2], *samples.log_lines(said, level="W"), *lines[-2:]])
    assert str(imported.records.measurements[0].route) == "runtime.cuda_graph=off"


def test_precision_flags_of_older_releases_have_no_route(read: Load, samples: ModuleType) -> None:
    imported = read(samples.run_log("--onnx=net.onnx", "--fp16", version="8601"))
    (reason,) = imported.files[0].skipped
    assert "option --fp16 may change what is built" in reason


def test_the_tuners_first_route_is_the_default(read: Load, samples: ModuleType) -> None:
    routes = [(samples.route(), "2.0"), (samples.route(kgen__tiling="0"), "1.0"), (samples.route(a="1"), None)]
    rows = read(samples.tuner_log(routes)).records.measurements
    assert [str(row.route) for row in rows] == ["", "compiler.kgen:tiling=0", "compiler.a=1"]
    assert [row.ratio for row in rows] == [1.0, 0.5, None]
    assert [row.status for row in rows] == [Status.OK, Status.OK, Status.CRASHED]
    assert rows[2].message == "child killed by signal 11 (Segmentation fault)"


def test_a_full_search_does_not_tell_the_default(read: Load, samples: ModuleType) -> None:
    routes = [(samples.route(kgen__tiling="0"), "2.0"), (samples.route(), "1.0")]
    imported = read(samples.tuner_log(routes, "--tuningSearch=full"))
    assert all(len(row.route) == 2 and row.ratio is None for row in imported.records.measurements)
    assert imported.files[0].notes == {NO_DEFAULT: 2}


def test_a_pinned_knob_of_a_search_is_not_taken_for_its_default(read: Load, samples: ModuleType) -> None:
    lines = samples.tuner_log([(samples.route(), "2.0")])
    imported = read([line.replace("-kgen:tiling=[0|1|2]", "-kgen:tiling=2") for line in lines])
    assert str(imported.records.measurements[0].route) == "compiler.kgen:tiling=2"


def test_several_runs_may_follow_each_other(read: Load, samples: ModuleType) -> None:
    lines = [*samples.run_log("--onnx=net.onnx"), *samples.run_log("--onnx=net.onnx", "--noTF32", median="1.5")]
    assert [row.ratio for row in read(lines).records.measurements] == [1.0, None]


def test_an_inaccurate_run_keeps_its_time(read: Load, samples: ModuleType) -> None:
    lines = samples.run_log("--onnx=net.onnx", end="FAILED")
    said = "Accuracy validation FAILED: one or more tensors exceeded the threshold."
    (row,) = read([*lines[:-1], *samples.log_lines(said, level="E"), lines[-1]]).records.measurements
    assert (row.status, row.latency_ms, row.message) == (Status.INACCURATE, 1.25, said)


@pytest.mark.parametrize(
    ("kept", "status"),
    [
        ("Starting inference", Status.CRASHED),
        ("Engine built", Status.LOAD_FAILED),
        ("Finished parsing", Status.BUILD_FAILED),
    ],
)
def test_a_failed_run_failed_at_some_stage(read: Load, samples: ModuleType, kept: str, status: Status) -> None:
    lines = samples.run_log("--onnx=net.onnx", end="FAILED")
    stop = next(index for index, line in enumerate(lines) if kept in line)
    cut = [*lines[: stop + 1], *samples.log_lines("something broke", level="E"), lines[-1]]
    (row,) = read(cut, shapes={"x": (4, 64)}).records.measurements
    assert (row.status, row.latency_ms, row.message) == (status, None, "something broke")


def test_what_was_not_measured_is_counted(read: Load, samples: ModuleType) -> None:
    whole = samples.run_log("--onnx=net.onnx")
    unstable = samples.log_lines("* GPU compute time is unstable, with coefficient of variance = 9%.", level="W")
    cases = [
        (whole[:-1], NO_END),
        ([line for line in whole if "GPU Compute" not in line], NOTHING_TIMED),
        ([*whole[:-1], *unstable, whole[-1]], UNSTABLE),
        (samples.run_log("--onnx=net.onnx", median="nan"), NOT_A_NUMBER),
        (samples.run_log("--onnx=net.onnx", median="0"), NOT_A_NUMBER),
        ([whole[0], samples.banner("FAILED", "--onnx=net.onnx")], NOT_STARTED),
        (samples.summary("1.0"), NO_BANNER),
    ]
    for lines, reason in cases:
        assert read(lines).files[0].skipped == {reason: 1}


def test_shapes_come_from_the_run(tmp_path: Path, samples: ModuleType, read: Load) -> None:
    lines = samples.run_log("--onnx=net.onnx")
    other = [line.replace("4x64", "5x64") for line in lines]
    (reason,) = read(other).files[0].skipped
    assert "axis 0 of input 'x' is fixed at 4" in reason
    (reason,) = read(lines, shapes={"x": (3, 64)}).files[0].skipped
    assert reason == "the shapes given contradict those that it records"


def test_a_log_lends_its_gpu_to_the_cache_it_wrote(tmp_path: Path, samples: ModuleType, network: Path) -> None:
    route = samples.route(kgen__tiling="0")
    (tmp_path / "run.log").write_text("\n".join(samples.tuner_log([(samples.route(), "2.0"), (route, "1.0")])))
    rows = [samples.row(0, samples.route(), 2.1), samples.row(1, route, 1.1)]
    (tmp_path / "tuned.json").write_text(samples.text([samples.header(), *rows]))
    imported = import_files([tmp_path / "run.log", tmp_path / "tuned.json"], ImportRequest())
    assert [row.latency_ms for row in imported.records.measurements] == [2.1, 1.1]
    assert imported.files[0].skipped == {"the tuning cache tuned.json holds it too": 2}
    (environment,) = imported.records.environments.values()
    assert (environment.device, environment.tuner_version) == ("NVIDIA H100 PCIe", "2.19.45")
