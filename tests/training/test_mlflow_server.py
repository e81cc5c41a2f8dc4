"""Retraining against a real MLflow server whose store is a real PostgreSQL, from a history in PostgreSQL."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from routecast import costmodel
from routecast.datasets.history import History
from routecast.training import find_cost_model, retraining, run
from routecast.training.mlflow_store import connect
from routecast.training.registry import MODEL
from routecast.tuner.cli import app
from routecast.tuner.results import RoutePrediction

pytestmark = pytest.mark.postgres

TINY = ("--no-builtin", "--members", "2", "--epochs", "2", "--min-new", "20")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(ready: Callable[[], bool], process: subprocess.Popen[bytes], log, seconds: float = 180) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + seconds
    while not ready():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.1)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@contextmanager
def running(command, health: str, folder, **environment):  # type: ignore[no-untyped-def]
    """A server, until the block ends; it is in a group of its own, since it has workers."""
    log = folder / "server.log"
    # MLflow starts uvicorn by its name.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *command], stdout=file, stderr=subprocess.STDOUT, cwd=folder,
            env={**os.environ, "PATH": path, "MLFLOW_DISABLE_TELEMETRY": "true", **environment}, start_new_session=True,
        )  # fmt: skip
    try:
        wait_for(lambda: answers(health), process, log)
        yield log
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def server(postgres, tmp_path_factory):  # type: ignore[no-untyped-def]
    """The URL of an MLflow server."""
    folder, port = tmp_path_factory.mktemp("mlflow-server"), free_port()
    postgres.execute("CREATE DATABASE mlflow")
    store = postgres.url("mlflow").replace("postgresql://", "postgresql+psycopg://")
    command = ("server", "--port", str(port), "--workers", "1", "--artifacts-destination", str(folder / "artifacts"))
    with running(command, f"http://127.0.0.1:{port}/health", folder, MLFLOW_BACKEND_STORE_URI=store):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def fleet(server, postgres_url, tmp_path, monkeypatch, synthetic):  # type: ignore[no-untyped-def]
    """A history of 24 routes in PostgreSQL, and nothing in the registry; no weights are shipped."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    monkeypatch.setenv("ROUTECAST_HISTORY", postgres_url)
    monkeypatch.setenv("HOME", str(tmp_path))
    for module in (run, costmodel, retraining):
        monkeypatch.setattr(module, "BUILTIN", tmp_path / "nothing")
    monkeypatch.setattr(run, "evaluate", partial(run.evaluate, make_baselines=list))
    for found in connect().search_registered_models():
        connect().delete_registered_model(found.name)
    with History() as history:
        history.import_records(synthetic(["cnn", "transformer", "mixer"], 1, 8))


def retrain(*arguments: str) -> dict[str, object]:
    done = CliRunner().invoke(app, ["retrain", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, object] = json.loads(done.stdout)
    return found


def aliases() -> dict[str, str]:
    return {name: str(version) for name, version in connect().get_registered_model(MODEL).aliases.items()}


@pytest.mark.usefixtures("fleet")
def test_champions_come_and_go_on_a_server(monkeypatch, synthetic):
    first = retrain(*TINY)
    assert (first["action"], first["champion"]) == ("promoted", "1")
    with History() as history:
        history.import_records(synthetic(["unet"], 4, 8, seed=1))
    real = run.train_ensemble

    def prophet(*arguments):  # type: ignore[no-untyped-def]
        found = real(*arguments)
        rows = replace(found.out_of_fold.routes, predicted=found.out_of_fold.routes.log_ratio)
        return replace(found, out_of_fold=replace(found.out_of_fold, routes=rows))

    monkeypatch.setattr(run, "train_ensemble", prophet)
    second = retrain(*TINY)
    assert (second["action"], second["champion"]) == ("promoted", "2")
    assert aliases() == {"champion": "2", "previous": "1"}
    assert retrain(*TINY)["action"] == "skipped"
    assert retrain("--rollback")["champion"] == "1"
    assert aliases() == {"champion": "1"}
    assert find_cost_model().training["digest"] == connect().get_model_version(MODEL, "1").tags["history"]
    told = connect().get_run(second["run_id"])
    assert told.data.tags["source"].startswith("postgresql://owner@/history")
    assert "secret" not in json.dumps([told.data.tags, told.data.params])
    names = {item.path for item in connect().list_artifacts(second["run_id"], "figures")}
    assert "figures/families.png" in names


START = ("-m", "routecast.tuner.cli", "retrain", "--no-builtin", "--members", "2", "--min-new", "1")


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(("end", "status", "run_status"), [(signal.SIGTERM, 130, "FAILED"),
                                                           (signal.SIGKILL, -9, "RUNNING")])  # fmt: skip
def test_a_retrain_that_is_ended_leaves_the_registry_as_it_was(tmp_path, synthetic, end, status, run_status):
    assert retrain(*TINY)["action"] == "promoted"
    with History() as history:
        history.import_records(synthetic(["unet"], 4, 8, seed=1))
    experiment = connect().get_experiment_by_name("routecast").experiment_id
    before = {item.info.run_id for item in connect().search_runs([experiment])}

    def begun():  # type: ignore[no-untyped-def]
        return [item for item in connect().search_runs([experiment]) if item.info.run_id not in before]

    log = tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *START, "--epochs", "100000"], stdout=subprocess.PIPE, stderr=file,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    wait_for(lambda: bool(begun()), process, log)
    other = CliRunner().invoke(app, ["retrain", "--no-builtin"])
    assert other.exit_code == 75
    assert other.stderr == "error: another retrain of this history is running: wait until it ends\n"
    process.send_signal(end)
    assert process.wait(60) == status
    assert [item.info.status for item in begun()] == [run_status]
    assert aliases() == {"champion": "1"}
    assert len(connect().search_model_versions(f"name='{MODEL}'")) == 1
    if end is signal.SIGTERM:
        assert log.read_text() == "interrupted: nothing was finished; the champion is unchanged\n"
    assert retrain("--dry-run", *TINY)["action"] == "would_train"


def ask(url: str, **body: object) -> tuple[int, dict[str, object]]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def matmul_gelu() -> str:
    """A small network with a dynamic batch, in base64."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Erf", ["y"], ["e"]),
        helper.make_node("Mul", ["y", "e"], ["z"]),
    ]
    x, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 64]) for name in "xz")
    w = helper.make_tensor("w", TensorProto.FLOAT, [64, 64], [0.0] * 4096)
    graph = helper.make_graph(nodes, "small", [x], [z], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return base64.b64encode(model.SerializeToString()).decode()


@pytest.mark.usefixtures("fleet")
def test_the_champion_answers_under_mlflow_models_serve(tmp_path, server):
    """It loads in a process that only has routecast installed: another folder, nothing of this test's."""
    retrain(*TINY)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = ("models", "serve", "-m", f"models:/{MODEL}@champion", "--env-manager", "local", "-p", str(port))
    row = {"model": matmul_gelu(), "shapes": {"x": [8, 64]}}
    place = {"backend": "synthetic", "backend_version": "1.0", "device": "Synthetic CPU", "numbers": {"cores": 2}}
    routes = ["session.layout=blocked", "", "precision.policy=int8"]
    with running(command, f"{url}/ping", tmp_path, MLFLOW_TRACKING_URI=server, OMP_NUM_THREADS="1"):
        status, answer = ask(f"{url}/invocations", dataframe_records=[{**row, "environment": place, "routes": routes}])
        assert status == 200, answer
        (ranking,) = answer["predictions"]  # type: ignore[misc]
        assert sorted(item["route"] for item in ranking["routes"]) == sorted(routes)
        found = [RoutePrediction.from_json(item) for item in ranking["routes"]]
        assert found == sorted(found, key=lambda item: item.promise)
        first = ranking["routes"][0]
        assert set(first) == {"route", "ratio", "ratio_low", "ratio_high", "latency_ms", "failure"}
        assert ranking["default_ms_low"] < ranking["default_ms"] < ranking["default_ms_high"]

        status, answer = ask(f"{url}/invocations", dataframe_records=[row], params={"top": 3, "pool": 40})
        assert status == 200, answer
        (ranking,) = answer["predictions"]  # type: ignore[misc]
        assert (ranking["scored"], len(ranking["routes"])) == (40, 3)
        assert any("onnxruntime was never measured" in line for line in ranking["warnings"])

        newer = {**place, "backend_version": "2.0"}
        status, answer = ask(f"{url}/invocations", dataframe_records=[{**row, "environment": newer, "routes": routes}])
        assert status == 400
        assert "refused: synthetic 2.0 was never measured (only 1.0)" in str(answer["message"])
