from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gpu_report import against, by_network, continued, controls, duels, outcome, read_rows, repeated, show
from gpu_spaces import AsTrtexec, AsTrtexecInHalf, TrtexecSpace
from gpu_tasks import SEARCHES, Setting, Task, add_row, tune_row
from gpu_tuning import CHAINED, CONTROLS, MAIN, REPEATED, SEEDS, Lane, lanes, plan
from rich.console import Console

from routecast.costmodel import BUILTIN as COST_MODEL
from routecast.datasets.measurement import Measurement, Purpose, Status
from routecast.datasets.model import Model
from routecast.datasets.records import BUILTIN, Records
from routecast.datasets.route import Route
from routecast.training import find_cost_model
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.backends.tensorrt.channel import OPT_IN
from routecast.tuner.report import write_report
from routecast.tuner.results import RoutePrediction, TuneResult
from routecast.tuner.tuning import TuneConfig

MODEL = "vit_small_patch16_224_b8_o17"


@pytest.fixture(scope="module")
def records() -> Records:
    return Records.read_parquet(BUILTIN / "tensorrt_rtx_h200")


@pytest.fixture
def model(records: Records, monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setenv(OPT_IN, "1")
    fingerprint = next(item.fingerprint for item in records.measurements if item.model == MODEL)
    return cast("Model", SimpleNamespace(graph=records.graphs[fingerprint]))


@pytest.fixture
def result(records: Records, tmp_path: Path) -> TuneResult:
    """A tune put together from what was measured on the H200, its best route confirmed by one measurement."""
    found = [item for item in records.measurements if item.model == MODEL]
    control = next(item for item in found if item.purpose is Purpose.CONTROL)
    explored = [item for item in found if item.purpose is Purpose.EXPLORE][:8]
    best = min((item for item in explored if item.ok), key=lambda item: item.log_ratio)
    confirmed = Measurement.from_json({**best.to_json(), "purpose": "confirm", "identity": "confirmed"})
    assert best.ratio and best.ratio_low and best.ratio_high and control.default_ms
    return TuneResult(
        model_name=MODEL,
        model_path=tmp_path / "model.onnx",
        fingerprint=best.fingerprint,
        environment=records.environments[best.environment],
        winner=best.route,
        ratio=best.ratio,
        ratio_low=best.ratio_low,
        ratio_high=best.ratio_high,
        control_low=control.ratio_low or math.nan,
        control_high=control.ratio_high or math.nan,
        default_ms=control.default_ms,
        latency_ms=control.default_ms * best.ratio,
        verdict="faster",
        measurements=(control, *explored, confirmed),
        predictions=tuple(RoutePrediction(item.route, 0.9, 0.8, 1.0, 1.0, 0.1) for item in explored),
        warnings=(),
        cost_model="made up",
        strategy="model",
        output=tmp_path,
        artifact=None,
        settings={**vars(TuneConfig(backend="tensorrt-rtx")), "shapes": {}, "inputs": [], "ranges": {}},
        seconds=90.0,
        builds=len(explored),
    )


def row(network: str = "a", search: str = "routecast", seed: int = 0, **values: Any) -> dict[str, Any]:
    kept: dict[str, Any] = {"winner": "x=1", "ratio": 0.5, "low": 0.49, "high": 0.51, "control": [0.999, 1.001]}
    return {"kind": "tune", "network": network, "search": search, "seed": seed, **kept, **values}


def test_every_search_is_planned_for_every_network_and_what_matters_most_comes_first() -> None:
    tasks = plan()
    assert len(set(tasks)) == len(tasks)
    tuned = {(task.network, task.search) for task in tasks if task.kind in ("tune", "chain") and task.seed == 0}
    assert tuned >= {(network, search) for network in MAIN for search in SEARCHES}
    first = tasks[: len(MAIN)]
    assert {task.network for task in first} == set(MAIN)
    assert {(task.search, task.seed, task.time) for task in first} == {("routecast", 0, 1)}
    assert {task.network: task.repeats for task in tasks if task.kind == "chain"} == dict.fromkeys(REPEATED, CHAINED)
    repeats = {(task.network, task.seed) for task in tasks if task.kind == "tune" and task.seed}
    assert repeats == {(network, seed) for network in REPEATED for seed in SEEDS}
    assert sum(task.repeats for task in tasks if task.kind == "control") >= CONTROLS


@pytest.mark.parametrize("count", [1, 2, 3])
def test_all_of_a_network_happens_on_one_gpu_and_every_part_once(count: int) -> None:
    shared = lanes(plan(), count)
    assert Counter(task for lane in shared for task in lane) == Counter(plan())
    where = defaultdict(set)
    for index, lane in enumerate(shared):
        for task in lane:
            where[task.network].add(index)
    assert all(len(found) == 1 for found in where.values())
    assert max(map(len, shared)) < 1.5 * len(plan()) / count


def test_names_of_parts_are_distinct_and_fit_for_files() -> None:
    names = [task.name for task in plan()]
    assert len(set(names)) == len(names)
    assert all(name.replace("-", "").replace("_", "").isalnum() for name in names)


def test_as_trtexec_changes_one_compiler_knob_after_the_other(model: Model) -> None:
    whole, space = get_backend("tensorrt-rtx").space(model), AsTrtexec().space(model)
    assert space.knobs == whole.knobs
    changes = space.single_changes()
    assert changes
    assert all(len(route) == 1 and next(iter(route)).startswith("compiler.") for route in changes)
    assert changes == [route for route in whole.single_changes() if next(iter(route)).startswith("compiler.")]


def test_as_trtexec_in_half_begins_with_fp16_and_stays_there(model: Model) -> None:
    first, *others = AsTrtexecInHalf().space(model).single_changes()
    assert first == Route({"precision.policy": "fp16"})
    assert others
    assert all(len(route) == 2 and route["precision.policy"] == "fp16" for route in others)


def test_other_changes_of_such_a_space_are_those_of_the_whole(model: Model) -> None:
    whole, space = get_backend("tensorrt-rtx").space(model), AsTrtexec().space(model)
    base = Route({"precision.policy": "bf16"})
    assert isinstance(space, TrtexecSpace)
    assert space.single_changes(base) == whole.single_changes(base)


def test_backends_of_the_rivals_measure_as_the_real_one() -> None:
    for _, backend in SEARCHES.values():
        assert get_backend(backend or "tensorrt-rtx").name == "tensorrt-rtx"


def test_the_row_of_a_tune_holds_its_raw_measurements(result: TuneResult) -> None:
    made = json.loads(json.dumps(tune_row(result)))
    assert made["ratio"] == result.ratio
    assert made["builds"] == 8
    assert made["ok"] == sum(item.ok for item in result.measurements[1:-1])
    assert made["accuracy"]["cos"] == max(
        item.accuracy["cos"] for item in result.measurements if item.route == result.winner
    )
    assert [item.get("route", "") for item in made["measurements"]] == [str(item.route) for item in result.measurements]
    assert "local_profile" not in made["measurements"][0]
    assert made["environment"]["device"] == "NVIDIA H200"


def test_the_report_of_a_tune_on_tensorrt_is_written(result: TuneResult, records: Records, tmp_path: Path) -> None:
    text = write_report(result, records.graphs[result.fingerprint], tmp_path / "report.html").read_text()
    assert "NVIDIA H200" in text
    assert "--backend tensorrt-rtx" in text


def test_a_search_wins_only_when_the_intervals_are_apart() -> None:
    fast = row(winner="y=1", ratio=0.6, low=0.59, high=0.61)
    assert outcome(row(), fast) == "wins"
    assert outcome(fast, row()) == "loses"
    assert outcome(row(), row(winner="y=1", ratio=0.52, low=0.505, high=0.53)) == "ties"
    assert outcome(row(), row(low=0.6, high=0.7)) == "ties"
    assert outcome(row(low=0.4999, high=0.5001), row(winner="y=1", ratio=0.502, low=0.501, high=0.503)) == "ties"
    assert outcome(row(low=0.4999, high=0.5001), row(winner="y=1", ratio=0.504, low=0.503, high=0.505)) == "wins"


def test_searches_are_compared_on_networks_that_both_tuned() -> None:
    rows = [
        row("a"),
        row("a", "fast", winner="", ratio=1.0, low=1.0, high=1.0),
        row("b", ratio=0.25, low=0.24, high=0.26),
        row("b", "fast", ratio=0.25, low=0.24, high=0.26),
        row("c"),
        {**row("c", "fast"), "error": "not finished"},
    ]
    assert set(by_network(rows)) == {"a", "b", "c"}
    found = against(rows)
    assert set(found) == {"fast"}
    assert found["fast"]["networks"] == 2
    assert (found["fast"]["wins"], found["fast"]["ties"], found["fast"]["loses"]) == (1, 1, 0)
    assert found["fast"]["routecast"] == pytest.approx(math.sqrt(2 * 4))
    assert found["fast"]["theirs"] == pytest.approx(2.0)


def test_repeated_tunes_agree_tie_or_differ() -> None:
    other = row("b", seed=1, winner="y=1", ratio=0.505, low=0.495, high=0.515)
    apart = row("c", seed=1, winner="y=1", ratio=0.7, low=0.69, high=0.71)
    found = repeated([row("a"), row("a", seed=1), row("b"), other, row("c"), row("c", time=2), apart, row("d")])
    assert {name: (each["again"], each["other_seeds"]) for name, each in found.items()} == {
        "a": ("once", "agree"), "b": ("once", "tie"), "c": ("agree", "differ"),
    }  # fmt: skip


def test_controls_count_false_winners_and_those_off_by_more_than_half_a_per_cent() -> None:
    one = {"kind": "control", "network": "a", "ratio": 1.001, "low": 1.0, "high": 1.002, "confirmed": 0.999}
    found = controls([{**one, "winner": False}, {**one, "ratio": 0.99, "winner": True}])
    assert (found["repeats"], found["false_winners"], found["within"], found["worst"]) == (2, 1, 1, 0.99)
    assert controls([]) == {}


def test_rows_come_back_and_are_shown(result: TuneResult, tmp_path: Path) -> None:
    setting = Setting(tmp_path, "tensorrt-rtx", "", 8)
    task = {"kind": "tune", "network": MODEL, "search": "routecast", "seed": 0}
    add_row(setting, {**task, **tune_row(result)})
    add_row(setting, {**task, "search": "fast", "error": "not begun: no time was left"})
    rows = read_rows([setting.rows])
    console = Console(record=True, width=250)
    show(rows, console)
    text = console.export_text()
    assert f"{1 / result.ratio:.3f}x" in text
    assert "not begun: no time was left" in text


def test_a_part_that_fails_is_a_row(tmp_path: Path) -> None:
    from gpu_tasks import do

    (tmp_path / "networks").mkdir()
    (tmp_path / "networks" / f"{MODEL}.failed").write_text("no torch")
    with pytest.raises(Exception, match="no torch"):
        do(Task("kill", MODEL), Setting(tmp_path, "tensorrt-rtx", "", 8))
    assert "no torch" in read_rows([tmp_path / "rows.jsonl"])[0]["error"]


def test_a_cost_model_given_as_a_folder_needs_no_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    found = find_cost_model(COST_MODEL)
    assert found is not None
    assert found.familiarity.models > 0


def test_of_tunes_with_one_history_the_first_is_a_tune_like_any_other() -> None:
    changes = {1: 0.1, 2: 0.0, 3: 0.001}
    chain = [
        row(kind="chain", time=number, winner=f"x={number}", ratio=0.5 + more, low=0.499 + more, high=0.501 + more)
        for number, more in changes.items()
    ]
    rows = [*chain, row(time=4, winner="x=1"), row(kind="chain", time=4, error="not finished")]
    found = continued(rows)["a"]
    assert found["winners"] == ["x=1", "x=2", "x=3"]
    assert (found["again"], found["after_the_first"]) == ("differ", "tie")
    assert by_network(rows)["a"]["routecast"]["time"] == 1
    assert len(repeated(rows)["a"]["winners"]) == 2


def test_a_duel_says_whether_what_tunes_apart_chose_is_equally_fast() -> None:
    tuned = [row(winner="x=1"), row(seed=1, winner="x=2", ratio=0.504, low=0.503, high=0.505), row("b"), row("c")]
    chain = [row(kind="chain", time=number, winner=f"x={number}") for number in (1, 3)]
    ratios = {"x=1": 0.500, "x=2": 0.502, "x=3": 0.450}
    fought = [
        row(kind="duel", winner=winner, ratio=ratio, low=ratio - 0.0005, high=ratio + 0.0005)
        for winner, ratio in ratios.items()
    ]
    found = duels([*tuned, *chain, *fought, row("b", kind="duel", error="no GPU")])
    assert list(found) == ["a"]
    assert found["a"]["apart"] == "tie"  # x=3 had the history of another
    assert found["a"]["winners"] == ["x=1", "x=2", "x=3"]
    fought[1] |= {"ratio": 0.51, "low": 0.509, "high": 0.511}
    assert duels([*tuned, *fought])["a"]["apart"] == "differ"


def test_a_duel_waits_for_the_tunes_of_its_network_and_for_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [Task("tune", "a"), Task("tune", "b"), Task("duel", "a"), Task("control", "a")]
    lane = Lane("0", [0], tasks, Setting(tmp_path, "onnxruntime", "", 8), math.inf)
    open_a, open_b, done = threading.Event(), threading.Event(), list[str]()
    gates = {"tune-a": open_a, "tune-b": open_b}

    def work(task: Task) -> None:
        gates.get(f"{task.kind}-{task.network}", threading.Event()).wait(5 if task.kind == "tune" else 0)
        done.append(f"{task.kind}-{task.network}")

    monkeypatch.setattr(lane, "_do", work)
    threads = lane.start(4)
    while done != ["control-a"]:
        time.sleep(0.01)
    time.sleep(0.1)
    assert done == ["control-a"]  # the duel has not begun
    open_a.set()
    while len(done) < 3:
        time.sleep(0.01)
    assert done == ["control-a", "tune-a", "duel-a"]
    open_b.set()
    for thread in threads:
        thread.join()


class Bench:
    """Measures routes as told, and remembers the order."""

    def __init__(self, ratios: dict[str, list[float]]) -> None:
        self.ratios, self.order = ratios, list[str]()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def start(self) -> None:
        pass

    def measure(self, route: Route, purpose: Purpose) -> Measurement:
        self.order.append(str(route))
        ratio = self.ratios[str(route)][self.order.count(str(route)) - 1]
        return Measurement(
            fingerprint="f", route=route, environment="e", status=Status.OK, purpose=purpose, latency_ms=ratio,
            default_ms=1.0, ratio=ratio, ratio_low=ratio - 0.001, ratio_high=ratio + 0.001,
        )  # fmt: skip


def test_a_duel_times_the_winners_of_its_network_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu_tasks

    setting = Setting(tmp_path, "tensorrt-rtx", "", 8)
    tuned = [row(winner="x=1"), row(seed=1, winner="x=2"), row(seed=2, winner="x=1"), row("b", winner="x=3")]
    for one in [*tuned, row(search="fast", winner="x=4"), {**row(seed=3), "error": "broken"}]:
        add_row(setting, one)
    bench = Bench({"x=1": [0.5, 0.6, 0.51], "x=2": [0.5, 0.5, 0.5]})
    monkeypatch.setattr(gpu_tasks, "_bench", lambda task, setting: bench)
    gpu_tasks.do(Task("duel", "a"), setting)
    assert bench.order == ["x=1", "x=2"] * 3
    fought = [one for one in read_rows([setting.rows]) if one["kind"] == "duel"]
    assert [(one["winner"], one["ratio"]) for one in fought] == [("x=1", 0.51), ("x=2", 0.5)]
    assert (fought[0]["low"], fought[0]["high"]) == (pytest.approx(0.499), pytest.approx(0.601))
    gpu_tasks.do(Task("duel", "b"), setting)  # they agree: nothing to fight about
    assert len(bench.order) == 6
