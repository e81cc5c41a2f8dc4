"""Routes that crash, hang, take all memory or answer nonsense: the parent must go on and say what happened."""

import os
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

from routecast.datasets.errors import RoutecastError
from routecast.datasets.measurement import Purpose, Status
from routecast.datasets.model import open_model
from routecast.datasets.route import Route
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.measure.runner import Limits
from routecast.tuner.measure.timing import TimingConfig
from routecast.tuner.measure.workbench import BenchConfig, Workbench

QUICK = TimingConfig(block_ms=1, min_blocks=4, max_blocks=8, seconds=0.2)


def small_network(path: Path) -> Path:
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((32, 32)).astype("f4") / 6, f"w{i}") for i in range(3)]
    nodes = []
    for i in range(3):
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"m{i}"], name=f"matmul{i}"))
        nodes.append(helper.make_node("Relu", [f"m{i}"], [f"x{i + 1}"], name=f"relu{i}"))
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [8, 32])],
        [helper.make_tensor_value_info("x3", TensorProto.FLOAT, [8, 32])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture
def bench(tmp_path, monkeypatch):
    folder = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")])))
    monkeypatch.syspath_prepend(folder)
    model = open_model(small_network(tmp_path / "small.onnx"))
    backend = get_backend("faulty_backend:FaultyBackend")
    # The latency of so small a network wanders: without a second attempt messages stay as they are.
    config = BenchConfig(limits=Limits(seconds=10, bytes=2 << 30), explore=QUICK, confirm=QUICK, attempts=1)
    with Workbench(model, backend, backend.space(model), tmp_path / "bench", config) as bench:
        bench.start()
        yield bench


def test_ok_route_has_everything(bench):
    measurement = bench.measure(Route(), Purpose.CONTROL)
    assert measurement.status is Status.OK, measurement.message
    assert measurement.ratio == pytest.approx(1.0, abs=0.5)
    assert measurement.accuracy["cos"] < 1e-5
    assert measurement.engine_bytes > 1000
    assert measurement.local_profile
    assert any(layer.node >= 0 for layer in measurement.local_profile)
    assert measurement.build_seconds is not None
    assert measurement.peak_bytes > 1e6


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("build_fails", Status.BUILD_FAILED, "the builder said no"),
        ("build_segfaults", Status.CRASHED, "SIGSEGV while building"),
        ("build_exits", Status.CRASHED, "exit status 1 while building"),
        ("load_fails", Status.LOAD_FAILED, "the loader said no"),
        ("memory", Status.CRASHED, "used more than 2.1 GB of memory, killed while loading"),
        ("nan", Status.INACCURATE, "NaN or infinity"),
        ("wrong", Status.INACCURATE, "cos loss 2 is above the limit"),
    ],
)
def test_faults_are_statuses_and_the_next_route_still_works(bench, fault, status, words):
    measurement = bench.measure(Route({"fault.kind": fault}))
    assert measurement.status is status
    assert words in measurement.message
    assert "\n" not in measurement.message
    assert bench.measure(Route()).status is Status.OK


def test_a_hanging_route_is_killed(bench):
    bench._runner._limits = Limits(seconds=1.5)
    began = time.monotonic()
    measurement = bench.measure(Route({"fault.kind": "load_hangs"}))
    assert measurement.status is Status.TIMED_OUT
    assert "no result within 2 s, killed while loading" in measurement.message
    assert time.monotonic() - began < 6


def test_waiting_for_a_device_does_not_count_towards_the_timeout(bench):
    bench._runner._limits = Limits(seconds=2.5)
    began = time.monotonic()
    measurement = bench.measure(Route({"fault.kind": "waits"}))
    assert time.monotonic() - began > 3.0
    assert measurement.status is Status.OK, measurement.message
    assert measurement.load_seconds < 2.5


def test_a_device_that_is_never_let_go_ends_the_work_and_is_no_routes_fault(bench, monkeypatch):
    monkeypatch.setattr("routecast.tuner.measure.runner.LONGEST_WAIT_SECONDS", 0.6)
    with pytest.raises(RoutecastError, match="another process of routecast has held the device"):
        bench.measure(Route({"fault.kind": "waits"}))
    assert bench.measure(Route()).status is Status.OK


def test_a_build_equal_to_one_timed_before_takes_over_its_timing(bench):
    control = bench.measure(Route(), Purpose.CONTROL)
    slim, both = (
        bench.measure(Route.parse(f"{passes}pass.onnxscript=rewrite")) for passes in ("", "pass.onnxslim=on ")
    )
    assert both.engine_hash == slim.engine_hash != control.engine_hash  # a pass without work left writes the same file
    assert both.message == "engine identical to that of pass.onnxscript=rewrite; timing taken from it"
    for name in ("status", "ratio", "blocks_ms", "default_blocks_ms", "accuracy", "local_profile", "device_state"):
        assert getattr(both, name) == getattr(slim, name)
    assert both.identity != slim.identity
    assert bench.artifacts[both.identity].exists()
    assert bench.measure(both.route, Purpose.CONFIRM).message == ""
    again = bench.measure(Route(), Purpose.CONTROL)
    assert (again.message, again.engine_hash) == ("", control.engine_hash)
    assert again.blocks_ms != control.blocks_ms


@pytest.mark.parametrize(("slow", "attempts"), [((), 1), ((0,), 2), ((0, 1), 3), ((0, 1, 2), 3)])
def test_a_timing_in_another_state_of_the_machine_is_made_again(bench, monkeypatch, slow, attempts):
    bench._config = replace(bench._config, attempts=3)
    for _ in range(3):
        bench._usual.add(1.0)
    run, jobs = bench._runner.run, []

    def timed(job):
        jobs.append(job)
        return {**run(job), "default_ms": 1.06 if len(jobs) - 1 in slow else 1.001}

    monkeypatch.setattr(bench._runner, "run", timed)
    measurement = bench.measure(Route({"pass.onnxslim": "on"}), Purpose.CONFIRM)
    assert len(jobs) == attempts
    assert measurement.default_ms == (1.06 if len(slow) == attempts else 1.001)
    note = f"timed {attempts} times, since the default route took 1.06 ms, usually 1 ms"
    assert measurement.message == (note if slow else "")
    assert not any(Path(job.folder).exists() for job in jobs)
    assert len({job.build_key for job in jobs}) == 1  # built once
    assert bench.artifacts[measurement.identity].exists()


def test_an_equal_build_under_other_settings_at_load_is_timed(bench):
    bench.measure(Route(), Purpose.CONTROL)
    other = bench.measure(Route({"session.memory_pattern": "off"}))
    assert other.message == ""
    assert bench.measure(other.route).message == f"engine identical to that of {other.route}; timing taken from it"
    bad = bench.measure(Route({"fault.kind": "wrong"}))  # the same file, spoilt while it is loaded
    assert bad.status is Status.INACCURATE


def test_onnx_runtime_tells_no_device_state(bench):
    assert bench.measure(Route(), Purpose.CONTROL).device_state == {}


def test_confirmations_are_built_again(bench):
    route = Route({"pass.onnxslim": "on"})
    first = bench.measure(route, Purpose.CONFIRM)
    second = bench.measure(route, Purpose.CONFIRM)
    assert bench.artifacts[first.identity] != bench.artifacts[second.identity]
    assert first.engine_hash == second.engine_hash


def test_children_die_with_a_killed_parent(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from routecast.tuner.measure.runner import Limits, Runner\n"
        "runner = Runner((), Limits())\n"
        "print(runner._started().pid, flush=True)\n"
        "import time; time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    zygote = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 5
    while Path(f"/proc/{zygote}").exists() and time.monotonic() < deadline:
        if "Z" in Path(f"/proc/{zygote}/stat").read_text().rsplit(")", 1)[1][:3]:
            break
        time.sleep(0.05)
    assert not Path(f"/proc/{zygote}/cmdline").exists() or not Path(f"/proc/{zygote}/cmdline").read_bytes()
