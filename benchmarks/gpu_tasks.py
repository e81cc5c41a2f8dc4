"""The parts of ``gpu_tuning.py``, each done in its own process: tunes, duels, A/A controls, a kill, the fp32 trap."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from aa_control import repeat_control
from gpu_networks import gpu_networks

from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.history import History
from routecast.datasets.measurement import Measurement, Purpose
from routecast.datasets.model import Model, open_model
from routecast.datasets.route import Route
from routecast.datasets.zoo import Network
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.confirmation import CONFIRMATIONS, Confirmation
from routecast.tuner.measure.runner import Limits
from routecast.tuner.measure.workbench import BenchConfig, Workbench
from routecast.tuner.results import TuneResult
from routecast.tuner.tuning import TuneConfig, tune

# Strategy, and the backend that says what may be tried when that is not the whole space.
SEARCHES: Mapping[str, tuple[str, str]] = {
    "routecast": ("model", ""),
    "fast": ("fast", ""),
    "fp16, then fast": ("fast", "gpu_spaces:AsTrtexecInHalf"),
    "compiler fast": ("fast", "gpu_spaces:AsTrtexec"),
    "random": ("random", ""),
}
# A route waits for the GPU as long as the tunes beside it load and time.
TIMEOUT_S = 300.0
# What was seen to go wrong, and right, on resnet50 in fp32.
TRAP = (
    "", "builder.tf32=off", "precision.policy=fp16", "form.opset=20", "pass.onnxslim=on", "compiler.conv_lowering=off",
    "compiler.rewrite_conv_mul_add=off", "builder.tf32=off compiler.rewrite_conv_mul_add=off",
    "precision.keep=matmul precision.policy=fp16",
)  # fmt: skip
_KILLED_AFTER = 2
_EXPORT_S = 240.0


@dataclass(frozen=True)
class Task:
    """One part of the benchmark.

    Attributes:
        kind: ``tune``, ``chain``, ``duel``, ``control``, ``kill`` or ``trap``; ``victim`` is what ``kill`` kills.
        network: name in ``gpu_networks``.
        search: one of ``SEARCHES``.
        seed: of the tune.
        time: 1, or 2 and more for the same tune again.
        repeats: of the control, or tunes of the chain.
        builds: routes of the tune, 0 for as many as all have.
        resume: whether a tune goes on with an interrupted one.
    """

    kind: str
    network: str
    search: str = "routecast"
    seed: int = 0
    time: int = 1
    repeats: int = 1
    builds: int = 0
    resume: bool = False

    @property
    def name(self) -> str:
        """Fit for a file."""
        search = self.search.replace(", ", "_").replace(" ", "_")
        return "-".join([self.kind, self.network, search, str(self.seed), str(self.time)])


@dataclass(frozen=True)
class Setting:
    """What all tasks share.

    Attributes:
        folder: of everything.
        backend: what builds and runs.
        cost_model: folder of the cost model, empty for none.
        builds: routes per tune.
    """

    folder: Path
    backend: str
    cost_model: str
    builds: int

    @property
    def rows(self) -> Path:
        """Where rows are added as they come, JSON lines."""
        return self.folder / "rows.jsonl"

    def network(self, task: Task) -> Path:
        """The task's network once it is exported.

        Raises:
            RoutecastError: it could not be.
        """
        path = self.folder / "networks" / f"{task.network}.onnx"
        until = time.monotonic() + _EXPORT_S
        while not path.exists():
            failed = path.with_suffix(".failed")
            if failed.exists() or time.monotonic() > until:
                raise RoutecastError(failed.read_text() if failed.exists() else f"{task.network} was not exported")
            time.sleep(0.2)
        return path

    def scratch(self, task: Task) -> Path:
        """A new folder for the files of a task."""
        folder = self.folder / "work" / task.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder


def add_row(setting: Setting, row: Mapping[str, Any]) -> None:
    """Adds one row, whole, however many processes do so."""
    with setting.rows.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.write(json.dumps(row) + "\n")


def do(task: Task, setting: Setting) -> None:
    """Does a task; what cannot be done is a row as well."""
    kinds: dict[str, Callable[[Task, Setting], Iterable[dict[str, Any]]]] = {
        "tune": _tunes, "chain": _tunes, "duel": _duel, "control": _control, "kill": _kill, "trap": _trap,
        "victim": _victim,
    }  # fmt: skip
    try:
        for row in kinds[task.kind](task, setting):
            add_row(setting, {**asdict(task), **row})
    except Exception as error:  # whatever it was, the others go on
        add_row(setting, {**asdict(task), "error": f"{type(error).__name__}: {str(error)[:400]}"})
        raise


def task_command(task: Task, setting: Setting) -> list[str]:
    """What does a task in a process of its own."""
    script = Path(__file__).with_name("gpu_tuning.py")
    words = [sys.executable, script, "task", setting.folder, json.dumps(asdict(task)), "--backend", setting.backend]
    return [str(word) for word in [*words, "--cost-model", setting.cost_model, "--builds", setting.builds]]


def known_network(name: str) -> Network:
    """A network by name."""
    return next(network for network in gpu_networks() if network.name == name)


def export(name: str, folder: Path) -> None:
    """Exports a network into a folder unless it is there, or leaves word there why it could not be."""
    if (folder / f"{name}.onnx").exists():
        return
    scratch = folder / f"{name}.partial"
    scratch.mkdir(parents=True, exist_ok=True)
    try:
        known_network(name).make(scratch).rename(folder / f"{name}.onnx")
    except Exception as error:
        (folder / f"{name}.failed").write_text(f"{type(error).__name__}: {str(error)[:400]}")


def _open(task: Task, setting: Setting) -> tuple[Network, Model]:
    network = known_network(task.network)
    path = setting.network(task)
    return network, open_model(path, network.shapes, name=network.name, family=network.family)


def _tunes(task: Task, setting: Setting) -> Iterable[dict[str, Any]]:
    """A tune, or the same one time after the other with one history, as a user's is: the first is like any other."""
    scratch = setting.scratch(task)
    for number in range(task.time, task.time + task.repeats):
        one = replace(task, time=number)
        result = _tuned(one, setting, scratch / "history.db", setting.folder / "tunes" / one.name)
        for heavy in [*result.output.glob("*.engine"), *result.output.glob("*.onnx*")]:
            heavy.unlink()
        yield {"time": number, **tune_row(result)}
    shutil.rmtree(scratch)


def _victim(task: Task, setting: Setting) -> Iterable[dict[str, Any]]:
    killer = replace(task, kind="kill", resume=False)
    folder = setting.folder / "work" / killer.name
    _tuned(task, setting, folder / "history.db", folder / "tuned")
    return ()


def _tuned(task: Task, setting: Setting, history: Path, output: Path) -> TuneResult:
    network, model = _open(task, setting)
    strategy, backend = SEARCHES[task.search]
    config = TuneConfig(
        backend=backend or setting.backend,
        builds=task.builds or setting.builds,
        strategy=strategy,
        cost_model=setting.cost_model or None,
        seed=task.seed,
        timeout_s=TIMEOUT_S,
    )
    return tune(
        model,
        family=network.family,
        ranges=network.ranges,
        history=history,
        output=output,
        resume=task.resume,
        config=config,
    )


def tune_row(result: TuneResult) -> dict[str, Any]:
    """What a tune ended with, and the measurements it comes from without their profiles."""
    of_winner = [item for item in result.measurements if item.route == result.winner and item.ok]
    losses = {name for item in of_winner for name in item.accuracy}
    explored = [item for item in result.measurements if item.purpose is Purpose.EXPLORE]
    return {
        "model": result.model_name,
        "default_ms": result.default_ms,
        "latency_ms": result.latency_ms,
        "ratio": result.ratio,
        "low": result.ratio_low,
        "high": result.ratio_high,
        "control": [result.control_low, result.control_high],
        "winner": str(result.winner),
        "verdict": result.verdict,
        "accuracy": {name: max(item.accuracy.get(name, 0.0) for item in of_winner) for name in sorted(losses)},
        "builds": result.builds,
        "ok": sum(item.ok for item in explored),
        "minutes": result.seconds / 60,
        "strategy": result.strategy,
        "cost_model": result.cost_model,
        "warnings": list(result.warnings),
        "environment": result.environment.to_json(),
        "measurements": [_brief(item) for item in result.measurements],
        "predictions": [item.to_json() for item in result.predictions],
    }


def _brief(item: Measurement) -> dict[str, Any]:
    left_out = {"fingerprint", "environment", "model", "family", "local_profile", "run", "identity", "peak_bytes"}
    values = {name: value for name, value in item.to_json().items() if name not in left_out and value not in (None, "")}
    return {**values, "blocks_ms": len(item.blocks_ms), "default_blocks_ms": len(item.default_blocks_ms)}


def _bench(task: Task, setting: Setting) -> Workbench:
    network, model = _open(task, setting)
    backend = get_backend(setting.backend)
    config = BenchConfig(ranges=network.ranges, limits=Limits(TIMEOUT_S))
    return Workbench(model, backend, backend.space(model), setting.scratch(task), config)


def _duel(task: Task, setting: Setting) -> Iterable[dict[str, Any]]:
    """What the tunes of a network chose, rebuilt in turns and timed in one go beside the same default."""
    rows = (json.loads(line) for line in setting.rows.read_text().splitlines())
    mine = [row for row in rows if (row["network"], row["search"]) == (task.network, task.search)]
    winners = [Route.parse(text) for text in dict.fromkeys(row["winner"] for row in mine if "winner" in row)]
    if len(winners) < 2:
        return
    with _bench(task, setting) as bench:
        bench.start()
        turns = [[bench.measure(route, Purpose.CONFIRM) for route in winners] for _ in range(CONFIRMATIONS)]
    for route, measurements in zip(winners, zip(*turns, strict=True), strict=True):
        found = Confirmation(route, measurements)
        measured = {"ratio": found.ratio, "low": found.low, "high": found.high}
        yield {"winner": str(route), **measured, "measurements": [_brief(item) for item in measurements]}


def _control(task: Task, setting: Setting) -> Iterable[dict[str, Any]]:
    with _bench(task, setting) as bench:
        bench.start()
        for _ in range(task.repeats):
            yield repeat_control(bench)


def _trap(task: Task, setting: Setting) -> Iterable[dict[str, Any]]:
    with _bench(task, setting) as bench:
        bench.start()
        for text in TRAP:
            route = Route.parse(text)
            with suppress(UsageError):  # another version's space may lack it
                bench.space.canonical(route)
                yield {"measurement": _brief(bench.measure(route))}


def _kill(task: Task, setting: Setting) -> Iterable[dict[str, Any]]:
    """Kills a tune while it measures a route, then resumes it."""
    setting.network(task)
    scratch = setting.scratch(task)
    history = scratch / "history.db"
    victim = replace(task, kind="victim")
    began = time.monotonic()
    process = subprocess.Popen(task_command(victim, setting))
    while process.poll() is None and len(_explored(_measured(history))) < _KILLED_AFTER:
        time.sleep(0.3)
    time.sleep(1.0)  # the next route is under way then
    process.send_signal(signal.SIGKILL)
    killed = process.wait()
    before = _measured(history)
    resumed = subprocess.run(task_command(replace(victim, resume=True), setting), check=False).returncode
    after = _measured(history)
    routes = Counter(str(item.route) for item in _explored(after))
    result = TuneResult.load(scratch / "tuned") if resumed == 0 else None
    yield {
        "killed_by": -killed,
        "kept": len(before),
        "lost": len({item.identity for item in before} - {item.identity for item in after}),
        "explored": sum(routes.values()),
        "explored_twice": sum(count > 1 for count in routes.values()),
        "controls": sum(item.purpose is Purpose.CONTROL for item in after),
        "resumed_exit": resumed,
        "minutes": (time.monotonic() - began) / 60,
        "ratio": result.ratio if result else None,
        "winner": str(result.winner) if result else None,
    }


def _measured(history: Path) -> list[Measurement]:
    if not history.exists():
        return []
    try:
        with History(history) as opened:
            return list(opened.measurements())
    except RoutecastError:  # it is being made
        return []


def _explored(measurements: Iterable[Measurement]) -> list[Measurement]:
    return [item for item in measurements if item.purpose is Purpose.EXPLORE]
