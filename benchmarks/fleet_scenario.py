"""A fleet's whole loop on this machine, checked by itself: Ray, PostgreSQL and MLflow are real, and a node is killed.

    python benchmarks/fleet_scenario.py [--folder FOLDER] [--per-network 10]

1. A PostgreSQL server, an MLflow server that stores in it, and a Ray cluster of a head and 3 worker nodes start.
2. Three networks are measured a little, and a first cost model is trained for one pass: weak on purpose. An operator
   makes it the champion, since against the shipped weights it would rightly lose.
3. Six networks are measured on the cluster; in the middle one worker node is killed with SIGKILL. Nothing may be
   missing or doubled afterwards.
4. ``routecast retrain`` trains a challenger on these and the shipped measurements, compares it with the champion on the
   same held-out rows, and promotes it.
5. A network of a family that neither history holds is tuned on the cluster with the new champion.

Needs PostgreSQL's ``initdb`` and the extras ``ray`` and ``postgres``. The nodes share the cores of one machine, so a
lock keeps their timings apart; what is shown is that nothing is lost, not how fast a fleet is.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from common import save
from rich.console import Console
from rich.table import Table

from routecast.datasets.history import History
from routecast.datasets.measurement import Purpose

FIRST = ("deepfm_b256", "unet_w8_b1_s96", "lstm_h256_b4_t32")
SIX = (*FIRST, "pointnet_b1_n1024", "edsr_w32_b1_s64", "textcnn_b8_t64")
TUNED, TUNED_FAMILY = "hrnet_w32_b1_s160", "hrnet"
WORKERS = 3
LIMIT_SECONDS = 900
BIN = Path(sys.executable).parent


def main() -> None:
    """Plays the scenario, prints a summary, and writes ``results/fleet_scenario.json``; status 1 when a check fails."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, help="keep logs and results here")
    parser.add_argument("--per-network", type=int, default=10)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleet-")))
        folder.mkdir(parents=True, exist_ok=True)
        checks = Scenario(folder.resolve(), arguments.per_network, stack).play()
    show(checks)
    save("fleet_scenario", checks, per_network=arguments.per_network, networks=SIX, tuned=TUNED)
    sys.exit(0 if all(check["ok"] for check in checks) else 1)


class Scenario:
    """The scenario under way; every check it made is a row."""

    def __init__(self, folder: Path, per_network: int, stack: ExitStack) -> None:
        """Takes the folder of logs and what ends the servers."""
        self.folder, self.per_network, self.stack = folder, per_network, stack
        self.rows: list[dict[str, Any]] = []
        self.began = time.monotonic()
        self.environment = {
            **os.environ, "HOME": str(folder), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "120", "MLFLOW_DISABLE_TELEMETRY": "true",
        }  # fmt: skip

    def play(self) -> list[dict[str, Any]]:
        """Everything, in order."""
        self.start()
        self.first_champion()
        self.collect_with_a_killed_node()
        self.retrain()
        self.tune()
        seconds = time.monotonic() - self.began
        self.check("all of it", seconds <= LIMIT_SECONDS, f"{seconds:.0f} s of {LIMIT_SECONDS}")
        return self.rows

    def check(self, what: str, ok: bool, found: str) -> None:
        """Notes whether something is as it must be."""
        at = round(time.monotonic() - self.began)
        self.rows.append({"what": what, "ok": bool(ok), "found": found, "seconds": at})
        print(f"{at:4d} s  {'ok    ' if ok else 'FAILED'}  {what}: {found}", flush=True)

    def start(self) -> None:
        """Starts the servers and the cluster."""
        tests = _tests()
        postgres = self.stack.enter_context(_postgres(tests))
        for name in ("history", "mlflow"):
            postgres.execute(f"CREATE DATABASE {name}")
        port = _free_port()
        self.environment |= {
            "ROUTECAST_HISTORY": postgres.url("history"),
            "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}",
            "MLFLOW_BACKEND_STORE_URI": postgres.url("mlflow").replace("postgresql://", "postgresql+psycopg://"),
        }
        artifacts = str(self.folder / "artifacts")
        self.serve("mlflow", "server", "--port", port, "--workers", 1, "--artifacts-destination", artifacts)
        self.ray = f"127.0.0.1:{_free_port()}"
        node = ("start", "--block", "--num-cpus", 1, "--object-store-memory", 80 << 20)
        self.serve("ray", *node, "--head", "--port", self.ray.partition(":")[2], "--include-dashboard", "false")
        _wait(lambda: self.alive() == 1, "Ray's head does not answer")
        self.nodes = []
        for number in range(WORKERS):  # one after the other: together they outlast Ray's patience on two cores
            self.nodes.append(self.serve("ray", *node, "--address", self.ray))
            _wait(lambda known=number + 2: self.alive() == known, "a worker node of Ray does not join")
        _wait(lambda: _answers(f"http://127.0.0.1:{port}/health"), "the MLflow server does not answer")
        self.check("servers", True, f"PostgreSQL, MLflow and {self.alive()} nodes of Ray are up")

    def first_champion(self) -> None:
        """A first, weak cost model."""
        self.routecast("collect", *_networks(FIRST), "--per-network", 4, "--ray", self.ray)
        self.routecast("train", "--no-builtin", "--members", 2, "--epochs", 1)
        client, name = self.registry()
        client.set_registered_model_alias(name, "champion", "1")
        self.check("first champion", True, "version 1, trained for one pass over three networks, made so by hand")

    def collect_with_a_killed_node(self) -> None:
        """Measures on the cluster while a node is killed."""
        wanted = len(SIX) * (self.per_network + 1)
        before = self.count()
        collecting = self.begin("collect", *_networks(SIX), "--per-network", self.per_network, "--ray", self.ray)
        _wait(lambda: self.count() > before + wanted // 4, "nothing is measured", 300, collecting)
        os.killpg(self.nodes[0].pid, signal.SIGKILL)
        killed_at = self.count() - before
        status = collecting.wait()
        with History(self.environment["ROUTECAST_HISTORY"]) as history:
            found = list(history.measurements())
        explored = Counter((item.model, item.route) for item in found if item.purpose is Purpose.EXPLORE)
        per_model = Counter(model for model, _ in explored)
        twice = sum(count > 1 for count in explored.values())
        done = f"exit status {status}; a node was killed after {killed_at} measurements"
        self.check("collection", status == 0, done)
        complete = all(per_model[name] >= self.per_network for name in SIX)
        self.check("nothing missing", complete, f"routes per network: {dict(sorted(per_model.items()))}")
        self.check("nothing doubled", twice == 0, f"{twice} of {len(explored)} routes were stored twice")
        ok = sum(item.ok for item in found)
        self.check("history", ok > 0.5 * len(found), f"{len(found)} measurements, {ok} ok, in PostgreSQL")

    def retrain(self) -> None:
        """Trains and promotes."""
        options = ("--members", 3, "--epochs", 25, "--min-new", 40)
        plan = json.loads(self.routecast("retrain", *options, "--dry-run", "--json"))
        self.check("dry run", plan["action"] == "would_train", plan["reason"])
        outcome = json.loads(self.routecast("retrain", *options, "--json"))
        client, name = self.registry()
        aliases = dict(client.get_registered_model(name).aliases)
        promoted = outcome["action"] == "promoted" and str(aliases.get("champion")) == "2"
        self.check("promotion", promoted, f"{outcome['action']}: {outcome['reason']}")
        self.check("a way back", str(aliases.get("previous")) == "1", f"aliases {aliases}")

    def tune(self) -> None:
        """Tunes another network with the new champion."""
        model, output = self.folder / "tuned.onnx", self.folder / "tuned"
        self.routecast("networks", "write", TUNED, "--output", model)
        self.routecast("tune", model, "--family", TUNED_FAMILY, "--builds", 6, "--output", output, "--ray", self.ray)
        result = json.loads((output / "result.json").read_text())
        self.check("tuned", (output / "model.onnx").exists(), result["verdict"])
        trusted = result["cost_model"] == "ensemble" and not result["warnings"]
        self.check("by the champion", trusted, f"{result['cost_model']}, warnings {result['warnings']}")
        safe = result["ratio"] <= 1.0
        self.check("never slower than the default", safe, f"ratio {result['ratio']:.3f}")

    def count(self) -> int:
        """Measurements in the history."""
        with History(self.environment["ROUTECAST_HISTORY"]) as history:
            return len(history)

    def registry(self) -> tuple[Any, str]:
        """A client of the MLflow server, and the name of the registered model."""
        from mlflow import MlflowClient

        from routecast.training.registry import MODEL

        return MlflowClient(self.environment["MLFLOW_TRACKING_URI"]), MODEL

    def alive(self) -> int:
        """How many nodes the cluster has."""
        code = "import ray; ray.init(address={!r}, logging_level=40); print(sum(n['Alive'] for n in ray.nodes()))"
        asked = [sys.executable, "-c", code.format(self.ray)]
        done = subprocess.run(asked, env=self.environment, capture_output=True, text=True, check=False)
        return int(done.stdout.split()[-1]) if done.returncode == 0 else 0

    def serve(self, program: str, *arguments: object) -> subprocess.Popen[bytes]:
        """A server in a process group of its own, ended with the scenario."""
        process = self.begin(*arguments, program=program)
        self.stack.callback(_end, process)
        return process

    def begin(self, *arguments: object, program: str = "routecast") -> subprocess.Popen[bytes]:
        """Starts a program whose output goes to a log."""
        with (self.folder / f"{program}.log").open("ab") as log:
            return subprocess.Popen(
                [BIN / program, *map(str, arguments)], env=self.environment, cwd=self.folder, stdout=log,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def routecast(self, *arguments: object) -> str:
        """Runs a command of routecast to its end and returns what it printed."""
        command = [BIN / "routecast", *map(str, arguments)]
        with (self.folder / "routecast.log").open("ab") as log:
            done = subprocess.run(
                command,
                env=self.environment,
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                check=False,
            )
        if done.returncode:
            last = (self.folder / "routecast.log").read_text(errors="replace").strip().splitlines()[-1:]
            raise SystemExit(f"routecast {' '.join(map(str, arguments))} ended with {done.returncode}: {last}")
        return done.stdout


def show(rows: list[dict[str, Any]]) -> None:
    """Prints the checks."""
    table = Table("after", "check", "found", "", title="A fleet on one machine")
    for row in rows:
        table.add_row(f"{row['seconds']} s", row["what"], row["found"], "ok" if row["ok"] else "FAILED")
    Console().print(table)


def _tests() -> ModuleType:
    """The tests' own PostgreSQL server is this one's too."""
    path = Path(__file__).parent.parent / "tests" / "conftest.py"
    spec = importlib.util.spec_from_file_location("routecast_test_servers", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def _postgres(tests: ModuleType) -> Iterator[Any]:
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        programs = tests._programs()
        if programs is None:
            raise SystemExit("PostgreSQL is needed: initdb is neither in PATH nor in /usr/lib/postgresql/*/bin")
        server = tests.PostgresServer(programs, Path(folder), tests._other_user())
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _networks(names: tuple[str, ...]) -> list[str]:
    return [part for name in names for part in ("--network", name)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _wait(
    ready: Callable[[], bool], otherwise: str, seconds: float = 120, needed: subprocess.Popen[bytes] | None = None
) -> None:
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until or (needed is not None and needed.poll() is not None):
            raise SystemExit(otherwise)
        time.sleep(1.0)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    main()
