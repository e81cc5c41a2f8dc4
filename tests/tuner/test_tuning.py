"""The whole loop through the command line: a tune, a killed one that goes on, and models that cannot be tuned."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from routecast.datasets.history import History
from routecast.datasets.measurement import Measurement, Purpose, Status
from routecast.datasets.route import Route
from routecast.tuner.confirmation import CONTROLS, Confirmation, control_margin, settled_control
from routecast.tuner.results import TuneResult
from routecast.tuner.tuning import TuneConfig

COMMAND = [sys.executable, "-m", "routecast.tuner.cli"]


def network(path: Path, last: str = "Relu", width: int = 64) -> Path:
    """Four matrix products, each followed by an activation; ``last`` is the last one."""
    rng = np.random.default_rng(0)
    shape = (width, width)
    weights = [numpy_helper.from_array(rng.standard_normal(shape).astype("f4") / 8, f"w{i}") for i in range(4)]
    nodes = []
    for i in range(4):
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"m{i}"], name=f"matmul{i}"))
        nodes.append(helper.make_node(last if i == 3 else "Relu", [f"m{i}"], [f"x{i + 1}"], name=f"act{i}"))
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [16, width])],
        [helper.make_tensor_value_info("x4", TensorProto.FLOAT, [16, width])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def run(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(folder)}
    return subprocess.run(
        [*COMMAND, *map(str, words)], capture_output=True, text=True, cwd=folder, env=environment, timeout=300
    )


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("tuned")
    network(folder / "small.onnx")
    options = ("--strategy", "random", "--builds", 3, "--history", folder / "h.db", "--output", folder / "out")
    return folder, run("tune", "small.onnx", *options, folder=folder)


def test_tune_leaves_everything_a_user_needs(tuned):
    folder, done = tuned
    assert done.returncode == 0, done.stderr
    assert "speed-up" in done.stdout
    assert "A/A control" in done.stdout
    out = folder / "out"
    result = TuneResult.load(out)
    assert result.builds == 3
    assert result.ratio <= 1.0
    assert {"model.onnx", "load_model.py", "route.txt", "report.html", "result.json"} <= set(os.listdir(out))
    with History(folder / "h.db") as history:
        stored = list(history.measurements())
    assert [item.identity for item in stored] == [item.identity for item in result.measurements]
    assert "</html>" in (out / "report.html").read_text()


def test_a_tune_goes_on_from_what_the_history_holds_of_the_model(tuned, tmp_path):
    """Its routes are not explored again, the best of them is confirmed; those of other devices are left alone."""
    folder, _ = tuned
    network(tmp_path / "small.onnx")
    shutil.copy(folder / "h.db", tmp_path / "h.db")
    with History(tmp_path / "h.db") as history:
        before = list(history.measurements())
        known = next(item for item in before if item.purpose is Purpose.EXPLORE and item.ok)
        lead = {"ratio": 0.1, "ratio_low": 0.0999, "ratio_high": 0.1001, "run": "other"}
        elsewhere = replace(history.environment(known.environment), device="another")
        history.add_environment(elsewhere)
        routes = [Route({"session.prepacking": "off"}), Route({"session.memory_pattern": "off"})]
        history.add(replace(known, **lead, identity="known"))
        history.add(replace(known, **lead, identity="elsewhere", route=routes[0], environment=elsewhere.identity))
        history.add(replace(known, **lead, identity="inaccurate", route=routes[1], accuracy={"cos": 0.5}))
    options = ("--strategy", "random", "--builds", 2, "--seed", 7, "--history", "h.db", "--output", "again")
    done = run("tune", "small.onnx", *options, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    result = TuneResult.load(tmp_path / "again")
    explored = {item.route for item in result.measurements if item.purpose is Purpose.EXPLORE}
    confirmed = {item.route for item in result.measurements if item.purpose is Purpose.CONFIRM}
    assert len(explored) == 2
    assert not explored & {item.route for item in before}
    assert known.route in confirmed
    assert not confirmed & set(routes) - explored


def test_the_exported_loader_runs_without_routecast(tuned):
    folder, _ = tuned
    code = (
        "import sys, numpy as np\n"
        "from load_model import load\n"
        "session = load()\n"
        "print(session.run(None, {'x0': np.ones((16, 64), 'f4')})[0].shape)\n"
        "assert not any(name.startswith('routecast') for name in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder / "out", capture_output=True, text=True)
    assert done.stdout.strip() == "(16, 64)", done.stderr


def test_a_killed_tune_goes_on_with_nothing_lost_and_nothing_measured_twice(tmp_path):
    network(tmp_path / "small.onnx")
    words = ["tune", "small.onnx", "--strategy", "random", "--builds", "4", "--history", "h.db", "--output", "out"]
    process = subprocess.Popen([*COMMAND, *words], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(before := measured(tmp_path / "h.db")) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = measured(tmp_path / "h.db")
    assert 3 <= len(before) < 5

    done = run(*words, "--resume", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    after = measured(tmp_path / "h.db")
    assert [item.identity for item in after[: len(before)]] == [item.identity for item in before]
    explored = [item.route for item in after if item.purpose is Purpose.EXPLORE]
    assert len(explored) == len(set(explored)) == 4
    assert sum(item.purpose is Purpose.CONTROL for item in after) in (1, CONTROLS)
    assert len(TuneResult.load(tmp_path / "out").measurements) == len(after)


def measured(path: Path) -> list[Measurement]:
    if not path.exists():
        return []
    with History(path) as history:
        return list(history.measurements())


def test_resume_refuses_what_it_cannot_continue(tuned, tmp_path):
    folder, _ = tuned
    network(tmp_path / "other.onnx", width=32)
    nothing = run("tune", "other.onnx", "--resume", folder=tmp_path)
    assert nothing.returncode == 2
    assert "nothing to resume" in nothing.stderr
    other = run("tune", "other.onnx", "--resume", "--output", folder / "out", folder=tmp_path)
    assert other.returncode == 2
    assert "another model" in other.stderr
    words = ("tune", folder / "small.onnx", "--resume", "--output", folder / "out", "--metric", "l1")
    options = run(*words, folder=tmp_path)
    assert options.returncode == 2
    assert "other options: metric" in options.stderr


def damaged(kind: str, folder: Path) -> list[str]:
    """Makes a model that cannot be tuned and returns the words after ``routecast tune``."""
    path = folder / "model.onnx"
    words: list[str] = []
    if kind != "missing":
        network(path)
    if kind == "random bytes":
        path.write_bytes(np.random.default_rng(0).bytes(5000))
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[:-3000])
    model = onnx.load(path) if kind not in ("missing", "random bytes", "truncated") else None
    if kind == "unknown operator":
        model.graph.node[3].op_type = "Reluu"
    if kind == "dynamic axes":
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    if kind in ("external data missing", "external data outside"):
        place = "weights.bin" if kind == "external data missing" else "../weights.bin"
        (folder.parent / "weights.bin").write_bytes(bytes(1 << 16))
        weight = model.graph.initializer[0]
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=place)
    if kind == "wrong input name":
        np.savez(folder / "in.npz", y=np.ones((16, 64), "f4"))
        words = ["--inputs", str(folder / "in.npz")]
    if kind == "wrong range name":
        words = ["--range", "y:0:1"]
    if kind == "NaN outputs":
        model.graph.node[7].op_type = "Sqrt"
    if kind == "zero outputs":
        model.graph.initializer[3].raw_data = bytes(4 * 64 * 64)
    if model is not None:
        onnx.save(model, path)
    return [str(path), *words]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("missing", "model.onnx"),
        ("random bytes", "ONNX"),
        ("truncated", "ONNX"),
        ("unknown operator", "Reluu"),
        ("dynamic axes", "--shapes"),
        ("external data missing", "weights.bin"),
        ("external data outside", "weights.bin"),
        ("wrong input name", "no array for input x0"),
        ("wrong range name", "not an input"),
        ("NaN outputs", "NaN or infinity"),
        ("zero outputs", "all zeros"),
    ],
)
def test_bad_input_is_one_clear_line_and_status_2(kind, told, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    done = run("tune", *damaged(kind, folder), "--history", "h.db", "--output", "out", folder=tmp_path)
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert told in line
    assert "Traceback" not in done.stderr


def confirmation(*intervals: tuple[float, float], status: Status = Status.OK) -> Confirmation:
    route = Route.parse("a=1")
    return Confirmation(
        route,
        tuple(
            Measurement("f", route, "e", status, ratio=(low * high) ** 0.5, ratio_low=low, ratio_high=high)
            for low, high in intervals
        ),
    )


def test_a_win_needs_every_rebuild_beyond_the_control():
    control = Measurement("f", Route(), "e", Status.OK, ratio=1.0, ratio_low=0.99, ratio_high=1.02)
    margin = control_margin(control)
    assert margin == pytest.approx(np.log(1.02))
    assert confirmation((0.90, 0.92), (0.91, 0.93)).wins(margin)
    assert not confirmation((0.90, 0.92), (0.97, 0.99)).wins(margin)
    assert not confirmation((0.90, 0.92), (0.91, 0.93), status=Status.INACCURATE).wins(margin)
    assert not confirmation((0.99, 1.01), (0.99, 1.01)).wins(margin)


@pytest.mark.parametrize(("builds", "width", "expected"), [(8, 1, 2), (9, 1, 3), (8, 6, 6), (3, 0, 1)])
def test_a_round_is_no_smaller_than_what_is_measured_at_once(builds, width, expected):
    assert TuneConfig(builds=builds, rounds=4).per_round(width) == expected


def control(low: float, high: float) -> Measurement:
    return Measurement("f", Route(), "e", Status.OK, ratio=(low * high) ** 0.5, ratio_low=low, ratio_high=high)


def test_a_control_that_strays_is_judged_with_two_more():
    quiet, disturbed, worse = control(0.99, 1.01), control(0.79, 1.01), control(0.7, 1.3)
    assert settled_control([quiet].__getitem__) is quiet, "no further one is measured"
    assert settled_control([disturbed, quiet, quiet].__getitem__) is quiet
    assert settled_control([disturbed, worse, quiet].__getitem__) is disturbed, "a noisy machine stays noisy"


def test_a_tiny_gain_is_no_win_however_sure():
    control = Measurement("f", Route(), "e", Status.OK, ratio=1.0, ratio_low=0.9999, ratio_high=1.0001)
    margin = control_margin(control)
    assert not confirmation((0.996, 0.997), (0.996, 0.997)).wins(margin)
    assert confirmation((0.990, 0.993), (0.990, 0.993)).wins(margin)
