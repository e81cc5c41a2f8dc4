"""A fleet on a real Ray cluster of several nodes whose workers are killed: nothing is lost, nothing is doubled."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from routecast.datasets.errors import MissingPackage, RoutecastError, UsageError
from routecast.datasets.history import History
from routecast.datasets.measurement import Measurement, Purpose, Status
from routecast.datasets.model import open_model
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.datasets.zoo import Network
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.cli import app
from routecast.tuner.collection import CollectConfig, collect
from routecast.tuner.fleet import Fleet, bundle, crew, replies
from routecast.tuner.fleet.bundle import pack, read_files, unpack, write_files
from routecast.tuner.fleet.crew import connect
from routecast.tuner.fleet.remote import versions
from routecast.tuner.fleet.replies import (
    REPLY_LIMIT,
    BadReply,
    Hello,
    decode,
    read_artifact,
    read_hello,
    read_measurement,
    read_space,
    refusal,
)
from routecast.tuner.measure.runner import Limits
from routecast.tuner.measure.subjects import Subject, Task, Unmeasured
from routecast.tuner.measure.timing import TimingConfig
from routecast.tuner.measure.workbench import BenchConfig
from routecast.tuner.results import Observer, TuneResult
from routecast.tuner.tuning import TuneConfig, tune

QUICK = TimingConfig(block_ms=1, min_blocks=4, max_blocks=6, seconds=0.2)
CONFIG = BenchConfig(input_sets=1, limits=Limits(30), explore=QUICK, confirm=QUICK)
STORE = {"object_store_memory": 80 << 20}
SLIM = Route({"pass.onnxslim": "on"})
REWRITTEN = Route({"pass.onnxscript": "rewrite"})
BOTH = Route({"pass.onnxslim": "on", "pass.onnxscript": "rewrite"})


def network(folder: Path, width: int = 16) -> Path:
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((width, width)).astype("f4"), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, width])],
        [weight],
    )
    path = folder / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def zoo(width: int) -> Network:
    return Network(f"tiny{width}", "toy", "torch", lambda folder: network(folder, width), {}, {})


class Notes(Observer):
    """Keeps what people are told; ``events`` happen when so many routes have been measured."""

    def __init__(self, **events) -> None:
        self.notes: list[str] = []
        self.stages: list[str] = []
        self.events = {int(name.removeprefix("after")): event for name, event in events.items()}

    def note(self, text: str) -> None:
        self.notes.append(text)

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def measured(self, measurement, prediction, best, done, total) -> None:
        if done in self.events:
            self.events.pop(done)()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three nodes on this machine: two with device A, the head among them, one with device B and what Ray counts as a
    GPU.
    """
    pytest.importorskip("ray", reason="ray is not installed: pip install 'routecast[ray]'")
    from ray.cluster_utils import Cluster

    here = str(Path(__file__).parent)
    log = tmp_path_factory.mktemp("log") / "builds"
    log.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
        patch.syspath_prepend(here)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("ROUTECAST_TEST_LOG", str(log))
        patch.setenv("ROUTECAST_TEST_DEVICE", "A")
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **STORE})
        started.log = log
        started.workers = [
            started.add_node(num_cpus=1, num_gpus=gpus, env_vars={"ROUTECAST_TEST_DEVICE": device}, wait=False, **STORE)
            for device, gpus in (("A", 0), ("B", 1))
        ]
        started.wait_for_nodes()
        yield started
        started.shutdown()


def actors(ray_name: str = "ray::RemoteWorker") -> list[psutil.Process]:
    """Measuring actors of this test's cluster, whose nodes are children of this process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[0].startswith(ray_name):
                found.append(process)
        except (psutil.Error, IndexError):
            continue
    return found


def all_gone(seconds: float) -> bool:
    """Whether no measuring actor is left after some time: Ray ends them without waiting for their end."""
    end = time.monotonic() + seconds
    while actors() and time.monotonic() < end:
        time.sleep(0.1)
    return not actors()


def kill_one_that_measures() -> None:
    victims = [*actors("ray::RemoteWorker.measure"), *actors()]
    os.kill(victims[0].pid, signal.SIGKILL)


def subject(folder: Path, run: str = "test", config: BenchConfig = CONFIG) -> Subject:
    return Subject(open_model(network(folder), family="toy"), config, run)


def never() -> bool:
    return False


@pytest.fixture(scope="class")
def fleet(cluster):
    with Fleet(cluster.address, get_backend("fleet_backend:Labelled"), Notes(), patience=60) as fleet:
        yield fleet


class TestKinds:
    """Faults and kinds of devices; the workers of one fleet serve all of these tests."""

    def test_each_kind_of_device_measures_every_route_in_its_own_environment(self, cluster, fleet, tmp_path):
        planned = []

        def plan(model, space, environment):
            planned.append(environment.device)
            assert "session.intra_op_threads" in space.by_name or space.left_out
            return [Task(Route(), Purpose.CONTROL), Task(SLIM), Task(REWRITTEN)]

        outcomes = list(fleet.measure([subject(tmp_path)], plan, never))
        assert sorted(planned) == ["A", "B"]
        done = Counter((item.environment.device, item.measurement.route) for item in outcomes)
        assert done == {(device, route): 1 for device in "AB" for route in (Route(), SLIM, REWRITTEN)}
        assert all(item.measurement.environment == item.environment.identity for item in outcomes)
        assert len({item.measurement.identity for item in outcomes}) == 6
        built = set(cluster.log.read_text().splitlines())  # written where it was built
        assert {f"{device} {route.label()}" for device in "AB" for route in (SLIM, REWRITTEN)} <= built

    def test_a_bench_takes_the_most_frequent_kind_and_fetches_builds(self, fleet, tmp_path):
        bench = fleet.bench(subject(tmp_path, "bench"), tmp_path / "work")
        assert bench.environment.device == "A"
        assert any("other kinds take no part" in note for note in fleet.observer.notes)
        first = bench.measure(SLIM, Purpose.CONFIRM)
        assert (first.status, first.run, first.purpose) == (Status.OK, "bench", Purpose.CONFIRM), first.message
        assert onnx.load(bench.artifact(first)).graph.node
        assert bench.artifact(replace(first, identity="0" * 32)) is None
        found = list(bench.measure_many([REWRITTEN, BOTH], never, lambda _: None))
        assert {item.route for item in found} == {REWRITTEN, BOTH}
        assert {bench.environment_of(item).device for item in found} == {"A"}

    def test_a_route_that_kills_its_workers_is_recorded_and_the_others_are_measured(self, fleet, tmp_path):
        kills = Route({"fault.kind": "kills_worker"})
        bench = fleet.bench(subject(tmp_path, "kills"), tmp_path / "work")
        found = {item.route: item for item in bench.measure_many([kills, SLIM], never, lambda _: None)}
        assert found[kills].status is Status.CRASHED
        assert found[kills].message.startswith("3 workers died while measuring it")
        assert found[SLIM].ok, found[SLIM].message
        assert sum("is lost" in note for note in fleet.observer.notes) == 3

    def test_at_the_deadline_what_is_under_way_is_ended_and_not_recorded(self, fleet, tmp_path):
        hangs = Task(Route({"fault.kind": "hangs"}))
        ends: list[float] = []
        outcomes = []
        plan = [Task(Route()), hangs, Task(SLIM)]
        for outcome in fleet.measure(
            [subject(tmp_path)], lambda *_: plan, lambda: bool(ends) and time.monotonic() > ends[0]
        ):
            outcomes.append(outcome)
            if outcome.measurement.route == Route():
                ends[:] = [*ends, time.monotonic() + 3][:1]
        assert time.monotonic() < ends[0] + 10
        assert hangs.route not in {item.measurement.route for item in outcomes}

    def test_a_model_that_does_not_run_is_said_with_the_users_path(self, fleet, tmp_path):
        path = network(tmp_path)
        proto = onnx.load(path)
        proto.graph.node[1].op_type = "Log"  # of negative numbers
        onnx.save(proto, path)
        (outcome,) = fleet.round(
            fleet._send(iter([Subject(open_model(path), CONFIG)]), []),
            lambda *_: [Task(SLIM), Task(REWRITTEN)],
            never,
            lambda worker: worker.environment.device == "A",
        )
        assert isinstance(outcome, Unmeasured)
        assert "NaN" in str(outcome.error)
        assert "routecast-worker" not in str(outcome.error)


def test_portable_builds_are_made_by_nodes_that_cannot_measure(cluster, tmp_path):
    cluster.log.write_text("")
    with Fleet(cluster.address, get_backend("fleet_backend:Portable"), Notes(), patience=60) as fleet:
        routes = [SLIM, REWRITTEN, BOTH, Route({"precision.policy": "dynamic_int8"})]
        outcomes = list(fleet.measure([subject(tmp_path)], lambda *_: map(Task, routes), never))
    assert {item.measurement.route for item in outcomes} == set(routes)
    assert {item.environment.device for item in outcomes} == {"B"}
    assert all(item.measurement.ok for item in outcomes)
    built = Counter(line.split()[1] for line in cluster.log.read_text().splitlines() if line.startswith("A "))
    assert built, "nothing was built on the nodes without a GPU"


def test_a_backend_that_no_worker_has_is_one_clear_line(cluster, tmp_path):
    with pytest.raises(RoutecastError, match="no worker can measure: tensorrt-rtx does not work there"):
        tune(network(tmp_path), output=tmp_path / "out", history=tmp_path / "h.db", ray=cluster.address,
             config=TuneConfig(backend="tensorrt-rtx"))  # fmt: skip


def test_every_route_is_measured_once_though_a_worker_is_killed_and_a_node_is_lost(cluster, tmp_path):
    """Runs last of the fast tests: the node stays lost."""
    observer = Notes(
        after2=kill_one_that_measures,
        after4=lambda: cluster.remove_node(cluster.workers.pop(0), allow_graceful=False),
    )
    config = CollectConfig(per_network=3, timing=QUICK)
    with History(tmp_path / "h.db") as store:
        summary = collect([zoo(16), zoo(24)], store, config, observer, ray=cluster.address)
        stored = list(store.measurements())
        assert not observer.events, "the faults were not injected"
        assert summary.measured == len(stored) == 8
        assert summary.skipped == {}
        done = Counter((item.model, item.route) for item in stored)
        assert set(done.values()) == {1}
        assert Counter(item.model for item in stored) == {"tiny16": 4, "tiny24": 4}
        assert not any("workers died" in item.message for item in stored)
        assert any("is lost" in note for note in observer.notes), observer.notes
        assert any(text.startswith("2 workers: ") for text in observer.stages)
        assert any(note.startswith("workers: ") for note in observer.notes)
    assert all_gone(seconds=60), "workers outlive their fleet"


@pytest.mark.slow
def test_a_tune_explores_on_all_workers_of_a_kind_and_exports_the_winner(cluster, tmp_path):
    cluster.workers.append(cluster.add_node(num_cpus=1, env_vars={"ROUTECAST_TEST_DEVICE": "A"}, **STORE))
    words = {"output": tmp_path / "out", "history": tmp_path / "h.db", "ray": cluster.address}
    config = TuneConfig(backend="fleet_backend:Labelled", strategy="fast", builds=4, timeout_s=20)
    result = tune(network(tmp_path), config=config, **words)
    assert result.environment.device == "A"
    with History(tmp_path / "h.db") as store:
        stored = list(store.measurements())
        assert {store.environment(item.environment).device for item in stored} == {"A"}
    assert [item.identity for item in stored] == [item.identity for item in result.measurements]
    assert sum(item.purpose is Purpose.EXPLORE for item in stored) == 4
    assert result.artifact is not None
    assert result.artifact.exists()
    more = tune(network(tmp_path), config=replace(config, builds=5), resume=True, **words)
    assert len(more.measurements) >= len(stored) + 1
    assert TuneResult.load(tmp_path / "out").builds == 5


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:9", "no Ray cluster answers at 127.0.0.1:9"),
        ("ray://127.0.0.1:9", "no Ray cluster answers at ray://127.0.0.1:9"),
        ("no.such.host.invalid:6379", "no Ray cluster answers at no.such.host.invalid:6379"),
        ("127.0.0.1", "--ray takes HOST:PORT"),
        ("host:port", "--ray takes HOST:PORT"),
    ],
)
def test_a_wrong_address_is_one_clear_line(address, words, tmp_path):
    pytest.importorskip("ray")
    done = CliRunner().invoke(app, ["collect", "--history", str(tmp_path / "h.db"), "--ray", address])
    assert done.exit_code == 2, done.output
    assert words in done.output


def test_without_ray_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackage, match=r"pip install 'routecast\[ray\]'"):
        connect("127.0.0.1:6379")


def test_something_else_that_listens_is_no_cluster(monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setattr(crew, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(UsageError, match="no Ray cluster answers"):
        connect(f"127.0.0.1:{other.getsockname()[1]}")


def test_a_bundle_takes_a_model_and_inputs_to_another_folder(tmp_path):
    given = tmp_path / "x.npy"
    np.save(given, np.ones((4, 16), "f4"))
    sent = subject(tmp_path, config=replace(CONFIG, inputs=(given, given)))
    packed = pack(sent)
    (tmp_path / "there").mkdir()
    received = unpack(packed, tmp_path / "there")
    assert received.model.graph == sent.model.graph
    assert open_model(received.model.path).graph.fingerprint == sent.model.graph.fingerprint
    assert [np.load(path).sum() for path in received.config.inputs] == [64, 64]
    assert replace(received, model=sent.model, config=sent.config) == sent


def test_what_is_too_large_to_send_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "MODEL_LIMIT", 1000)
    with pytest.raises(
        UsageError, match=r"the model .*tiny.onnx has .* GB sent over a fleet: measure it without --ray"
    ):
        pack(subject(tmp_path))
    np.save(tmp_path / "x.npy", np.ones((4, 15), "f4"))
    with pytest.raises(UsageError, match="must have shape"):
        pack(subject(tmp_path, config=replace(CONFIG, inputs=(tmp_path / "x.npy",))))
    with pytest.raises(RoutecastError, match="the build in"):
        read_files(tmp_path, [tmp_path / "tiny.onnx"], limit=10)


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "a/../../x"])
def test_files_stay_in_their_folder(name, tmp_path):
    with pytest.raises(RoutecastError, match="outside its folder"):
        write_files({name: b""}, tmp_path)


HERE = get_backend("onnxruntime").environment()


def test_workers_of_other_versions_or_without_the_backend_are_refused():
    own = versions()
    assert {"python", "routecast"} <= set(own)
    assert refusal(Hello(own, HERE, ()), "onnxruntime", own) is None
    other = refusal(Hello({**own, "routecast": "0.0.1"}, HERE, ()), "onnxruntime", own)
    assert other == f"it has routecast 0.0.1 and here {own['routecast']}: install the same versions on both"
    assert "tensorrt does not work there: GPU: none; get one" in str(
        refusal(Hello(own, HERE, ("GPU: none; get one",)), "tensorrt", own)
    )
    assert "not with tensorrt" in str(refusal(Hello(own, HERE, ()), "tensorrt", own))


@pytest.mark.parametrize("reply", [None, b"[]", b"\xff", b"{", b" " * (REPLY_LIMIT + 1)])
def test_answers_that_are_no_answers_are_refused(reply):
    with pytest.raises(BadReply):
        decode(reply)


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (lambda data: read_hello(json.dumps(data).encode()), {"versions": [], "environment": {}}),
        (lambda data: read_hello(json.dumps(data).encode()), {"versions": {}, "environment": 3, "missing": []}),
        (read_space, {"knobs": [{"name": "a"}], "left_out": {}}),
        (read_space, {"knobs": [{"name": "a", "values": ["x"], "default": "y", "requires": {}}], "left_out": {}}),
    ],
)
def test_malformed_answers_are_refused(read, data):
    with pytest.raises(BadReply):
        read(data)


@pytest.mark.parametrize("reply", [b"", ("x", {}), ("x", {"x": "text"}), ("../x", {"y": b""}), ("x", {"x": b"12345"})])
def test_only_builds_are_taken_for_builds(reply, monkeypatch):
    assert read_artifact(("x", {"x": b"1234"})) == ("x", {"x": b"1234"})
    monkeypatch.setattr(replies, "ARTIFACT_LIMIT", 4)
    with pytest.raises(BadReply):
        read_artifact(reply)


def test_a_route_space_survives_the_journey():
    knobs = (Knob("a.a", ("x", "y"), "x"), Knob("a.b", ("1", "2"), "2", "help", "build", True, {"a.a": ("y",)}))
    space = RouteSpace(knobs, {"a.c": "no such operator"})
    data = json.loads(json.dumps({"knobs": [asdict(knob) for knob in knobs], "left_out": space.left_out}))
    assert read_space(data) == space


GOOD = {
    "latency_ms": 1.0, "default_ms": 2.0, "ratio": 0.5, "ratio_low": 0.4, "ratio_high": 0.6,
    "blocks_ms": [1.0], "default_blocks_ms": [2.0],
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"fingerprint": "0" * 32}, "fingerprint"),
        ({"route": "a.a=x"}, "asked for route 'pass.onnxslim=on' and measured 'a.a=x'"),
        ({"route": "nonsense"}, "cannot be read"),
        ({"purpose": "confirm"}, "purpose"),
        ({"environment": "elsewhere"}, "environment"),
        ({"run": "another"}, "run"),
        ({"model": "other"}, "model"),
        ({"family": "other"}, "family"),
        ({"identity": "f" * 32}, "identity of its own"),
        ({"identity": "../../etc"}, "identity of its own"),
        ({"status": "great"}, "cannot be read"),
        ({"message": "x" * 10_000_000}, "cannot be read"),
        ({"ratio": -1.0}, "ratio -1.0"),
        ({"ratio": "0.5"}, "ratio '0.5'"),
        ({"latency_ms": None}, "ok but has no latency_ms"),
        ({"latency_ms": float("nan")}, "latency_ms nan"),
        ({"blocks_ms": [1.0, float("inf")]}, "blocks_ms that are no times"),
    ],
)
def test_only_the_measurement_asked_for_is_believed(change, words, tmp_path):
    asked = subject(tmp_path)
    good = Measurement(
        asked.model.graph.fingerprint, SLIM, HERE.identity, Status.OK, model="tiny", family="toy", run="test"
    )
    data = {"measurement": {**good.to_json(), **GOOD, **change}}
    if not words:
        assert read_measurement(data, asked, Task(SLIM), HERE, {"f" * 32}).identity == good.identity
        return
    with pytest.raises(BadReply, match=words):
        read_measurement(data, asked, Task(SLIM), HERE, {"f" * 32})
