from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from routecast.datasets.importers import Imported, import_files
from routecast.datasets.importers.importing import DAMAGED_PROFILE, IN_LOG, MANY_RUNS
from routecast.datasets.importers.session import NO_ROUTE, NOT_A_NUMBER, UNSTABLE
from routecast.datasets.importers.trtexec_json import DAMAGED_FILE, NO_TIMES, PROFILE_ALONE
from routecast.datasets.route import Route

Load = Callable[..., Imported]


@pytest.mark.parametrize("old", [False, True])
def test_times_are_one_measurement(load: Load, samples: ModuleType, network: Path, old: bool) -> None:
    text = samples.times([1.0, 1.01, 1.02, 1.0], old=old)
    (row,) = load(text, name="times.json", route=Route(), model=network).records.measurements
    assert (row.latency_ms, row.ratio) == (1.005, 1.0)
    pinned = Route({"compiler.kgen:tiling": "1"})
    (row,) = load(text, name="times.json", route=pinned, model=network).records.measurements
    assert (row.route, row.ratio) == (pinned, None)


def test_times_do_not_say_what_was_measured(load: Load, samples: ModuleType, network: Path) -> None:
    text = samples.times([1.0, 1.01])
    assert load(text, name="times.json", model=network).files[0].skipped == {NO_ROUTE: 1}
    (reason,) = load(text, name="times.json", route=Route()).files[0].skipped
    assert reason == "no ONNX file is named in it: name it with --model"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([1.0, float("nan")], NOT_A_NUMBER),
        ([1.0, None], NOT_A_NUMBER),
        ([1.0, -1.0], NOT_A_NUMBER),
        ([1.0, 2.0, 1.0, 2.0], UNSTABLE),
    ],
)
def test_times_that_are_no_measurement(
    load: Load, samples: ModuleType, network: Path, values: list[float], reason: str
) -> None:
    imported = load(samples.times(values), name="times.json", route=Route(), model=network)
    assert imported.files[0].skipped == {reason: 1}


def test_a_truncated_export_is_damaged(load: Load, samples: ModuleType, network: Path) -> None:
    text = samples.times([1.0] * 40)
    for cut, reason in ((text[:-30], DAMAGED_FILE), ("[\n]\n", "its content is none of")):
        (found,) = load(cut, name="times.json", route=Route(), model=network).files[0].skipped
        assert reason in found
    imported = load("[]", name="times.json", route=Route(), model=network)
    assert NO_TIMES not in imported.files[0].skipped


def test_a_profile_joins_the_run_that_wrote_it(load: Load, tmp_path: Path, samples: ModuleType, network: Path) -> None:
    (tmp_path / "run.log").write_text("\n".join(samples.run_log("--onnx=net.onnx", "--exportProfile=./p.json")))
    (tmp_path / "p.json").write_text(samples.profile({"conv1": 0.5, "__myl_Tran_a": 0.25}))
    imported = import_files([tmp_path / "run.log", tmp_path / "p.json"])
    (row,) = imported.records.measurements
    assert [(layer.name, layer.op, layer.ms) for layer in row.local_profile] == [
        ("conv1", "layer", 0.5), ("__myl_Tran_a", "Tran", 0.25),
    ]  # fmt: skip
    assert row.local_sum_ms == 0.75
    assert imported.files[1].notes == {"times of 2 layers joined to the run in run.log": 1}
    assert not imported.files[1].skipped


def test_releases_without_medians_have_means(load: Load, tmp_path: Path, samples: ModuleType, network: Path) -> None:
    (tmp_path / "run.log").write_text("\n".join(samples.run_log("--onnx=net.onnx", "--exportProfile=p.json")))
    (tmp_path / "p.json").write_text(samples.profile({"conv1": 0.5}, name="percentage"))
    (row,) = import_files([tmp_path / "run.log", tmp_path / "p.json"]).records.measurements
    assert row.local_sum_ms == 5.0


def test_a_profile_alone_has_no_latency(load: Load, samples: ModuleType) -> None:
    assert load(samples.profile({"conv1": 0.5}), name="p.json").files[0].skipped == {PROFILE_ALONE: 1}
    for broken in (
        samples.profile({"conv1": None}),
        samples.profile({"conv1": -1.0}),
        samples.profile({"a": 1.0})[:-9],
    ):
        assert load(broken, name="p.json").files[0].skipped == {DAMAGED_PROFILE: 1}


def test_a_profile_that_many_runs_wrote_is_nobodys(tmp_path: Path, samples: ModuleType, network: Path) -> None:
    lines = samples.run_log("--onnx=net.onnx", "--exportProfile=p.json")
    (tmp_path / "run.log").write_text("\n".join([*lines, *lines]))
    (tmp_path / "p.json").write_text(samples.profile({"conv1": 0.5}))
    assert import_files([tmp_path / "run.log", tmp_path / "p.json"]).files[1].skipped == {MANY_RUNS: 1}


def test_times_of_a_run_in_a_log_count_once(tmp_path: Path, samples: ModuleType, network: Path) -> None:
    (tmp_path / "run.log").write_text("\n".join(samples.run_log("--onnx=net.onnx", "--exportTimes=t.json")))
    (tmp_path / "t.json").write_text(samples.times([1.0, 1.01]))
    imported = import_files([tmp_path / "t.json", tmp_path / "run.log"])
    assert len(imported.records) == 1
    assert imported.files[0].skipped == {IN_LOG: 1}
