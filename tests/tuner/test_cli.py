from __future__ import annotations

import errno
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.history import History
from routecast.datasets.records import Records
from routecast.datasets.zoo import Network
from routecast.tuner.cli import app
from routecast.tuner.cli.networks import tune_command
from routecast.tuner.cli.options import parse_ranges, parse_shapes
from routecast.tuner.results import TuneResult

COMMANDS = ("tune", "predict", "knobs", "collect", "train", "retrain", "compare", "history", "networks", "doctor")
HEAVY = (
    "torch",
    "onnx",
    "onnxruntime",
    "mlflow",
    "sqlalchemy",
    "pyarrow",
    "matplotlib",
    "sklearn",
    "optuna",
    "numpy",
    "jinja2",
)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes ``routecast compare`` raise an error."""

    def set_error(error: BaseException) -> None:
        def fail(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr("routecast.tuner.sources.compare", fail)

    return set_error


def test_help_names_every_command() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for command in COMMANDS:
        assert f" {command} " in result.output
        assert run(command, "--help").exit_code == 0


def test_help_imports_nothing_heavy() -> None:
    code = f"""
import sys
from routecast.tuner.cli import app
try:
    app(["--help"])
except SystemExit:
    pass
print("LOADED", [name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED []"


def cpu_seconds(*arguments: str) -> float:
    """Least CPU time of a few runs of Python, since other work may run beside this one."""
    found = []
    for _ in range(4):
        before = os.times()
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
        after = os.times()
        found.append(after.children_user - before.children_user + after.children_system - before.children_system)
    return min(found)


def test_help_takes_little_longer_than_the_library_that_prints_it() -> None:
    # A ratio, since machines differ; benchmarks/scoring_speed.py has the seconds, which are to be below 0.5.
    assert cpu_seconds("-m", "routecast.tuner.cli", "--help") < 2 * cpu_seconds("-c", "import typer.rich_utils")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UsageError("no such\n file: x"), 2, "error: no such file: x"),
        (RoutecastError("it failed"), 1, "error: it failed"),
        (MemoryError(), 1, "error: out of memory"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/data/x"),
            1,
            "error: no space left on the disk (/data/x)",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/data/x"),
            1,
            "error: Permission denied (/data/x)",
        ),
        (ZeroDivisionError("division by zero"), 1, "error: unexpected ZeroDivisionError: division by zero"),
    ],
)
def test_an_error_is_one_line_and_a_status(
    broken: Callable[[BaseException], None], error: Exception, status: int, line: str
) -> None:
    broken(error)
    result = run("compare", "anything")
    assert result.exit_code == status
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("database is locked", "the history is locked by another process"),
        ("database or disk is full", "no space left on the disk for the history"),
        ("no such table: x", "the history's database failed: (sqlite3.OperationalError) no such table: x"),
    ],
)
def test_database_errors_are_one_line(broken: Callable[[BaseException], None], message: str, line: str) -> None:
    import sqlite3

    from sqlalchemy.exc import OperationalError

    broken(OperationalError("SELECT 1", {}, sqlite3.OperationalError(message)))
    result = run("compare", "anything")
    assert result.exit_code == 1
    assert line in result.stderr
    assert result.stderr.count("\n") == 1


def test_debug_shows_the_traceback_before_the_line(broken: Callable[[BaseException], None]) -> None:
    broken(RoutecastError("it failed"))
    result = run("--debug", "compare", "anything")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert result.stderr.rstrip().endswith("error: it failed")


def test_an_interruption_ends_with_130(broken: Callable[[BaseException], None]) -> None:
    broken(KeyboardInterrupt())
    result = run("compare", "anything")
    assert result.exit_code == 130
    assert result.stderr == "interrupted: nothing was kept\n"


def test_an_interrupted_tune_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("routecast.tuner.tuning.tune", interrupted)
    result = run("tune", "model.onnx")
    assert result.exit_code == 130
    assert "--resume" in result.stderr


@pytest.mark.parametrize(
    "arguments", [("tune",), ("tune", "x.onnx", "--builds", "0"), ("nonsense",), ("compare", "--nonsense")]
)
def test_wrong_options_end_with_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize("command", ["tune", "predict", "knobs"])
def test_a_missing_model_is_one_line(command: str, tmp_path: Path) -> None:
    result = run(command, tmp_path / "none.onnx")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert "none.onnx" in result.stderr
    assert result.stderr.count("\n") == 1


def test_compare_shows_a_table_json_and_a_report(result: TuneResult, tmp_path: Path) -> None:
    result.save()
    shown = run("compare", tmp_path, "--html", tmp_path / "compare.html")
    assert shown.exit_code == 0
    assert "session.threads=2" in shown.stdout
    assert "26.6 %" in shown.stdout
    assert (tmp_path / "compare.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    data = json.loads(run("compare", tmp_path, "--json").stdout)
    assert data["overall"]["routes"] == 5


def test_a_tunes_result_is_shown(result: TuneResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("routecast.tuner.tuning.tune", lambda *_, **__: result)
    shown = run("tune", "model.onnx")
    assert shown.exit_code == 0
    for text in (
        "* pass.fuse=on",
        "0.790 [0.774, 0.806]",
        "inaccurate",
        "1.27x the speed",
        "1.266x [1.241, 1.292]",
        "[0.990, 1.008]",
        "report.html",
        "made-up warning about <operators>",
    ):
        assert text in shown.stdout, text
    assert json.loads(run("tune", "model.onnx", "--json").stdout)["winner"] == "pass.fuse=on session.threads=2"


def test_tune_passes_its_options_on(result: TuneResult, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[tuple[Path, dict[str, Any]]] = []

    def record(model: Path, **options: object) -> TuneResult:
        calls.append((model, options))
        return result

    monkeypatch.setattr("routecast.tuner.tuning.tune", record)
    shown = run(
        "tune",
        "m.onnx",
        "--shapes",
        "input:0:1x3,y:2",
        "--range",
        "input:0:-1:1",
        "--inputs",
        "a.npz",
        "--inputs",
        "b.npz",
        "--builds",
        "3",
        "--rounds",
        "1",
        "--strategy",
        "fast",
        "--metric",
        "l2",
        "--threshold",
        "0.5",
        "--no-numerics",
        "--timeout",
        "7",
        "--memory-gb",
        "2",
        "--seed",
        "9",
        "--minutes",
        "1.5",
        "--output",
        tmp_path,
        "--resume",
        "--family",
        "resnet",
        "--history",
        "h.db",
        "--cost-model",
        "c",
        "--ray",
        "head:6379",
    )
    assert shown.exit_code == 0
    ((model, options),) = calls
    config = options.pop("config")
    assert options.pop("observer") is not None
    assert model == Path("m.onnx")
    assert options == {
        "shapes": {"input:0": (1, 3), "y": (2,)},
        "ranges": {"input:0": (-1.0, 1.0)},
        "family": "resnet",
        "history": "h.db",
        "inputs": [Path("a.npz"), Path("b.npz")],
        "output": tmp_path,
        "resume": True,
        "ray": "head:6379",
    }
    assert (config.builds, config.rounds, config.strategy, config.metric, config.threshold) == (
        3,
        1,
        "fast",
        "l2",
        0.5,
    )
    assert (config.timeout_s, config.memory_gb, config.seed, config.minutes) == (7.0, 2.0, 9, 1.5)
    assert (config.allow_numerics, config.cost_model) == (False, Path("c"))


def test_history_goes_to_parquet_and_back(result: TuneResult, tmp_path: Path) -> None:
    environment = result.environment
    with History(tmp_path / "one.db") as history:
        history.import_records(Records(list(result.measurements), {}, {environment.identity: environment}))
    assert "8 measurements" in run("history", "export", tmp_path / "parquet", "--history", tmp_path / "one.db").stdout
    first = run("history", "import", tmp_path / "parquet", "--history", tmp_path / "two.db")
    assert first.stdout.startswith("8 of 8 measurements were new")
    again = run("history", "import", tmp_path / "parquet", "--history", tmp_path / "two.db")
    assert again.stdout.startswith("0 of 8 measurements were new")
    stats = json.loads(run("history", "stats", "--history", tmp_path / "two.db", "--json").stdout)
    assert stats["by_status"] == {"ok": 7, "inaccurate": 1}
    shown = run("history", "stats", "--history", tmp_path / "two.db").stdout
    assert "8 measurements, 87.5% ok" in shown
    assert "toys" in shown


@pytest.mark.parametrize("command", ["stats", "export"])
def test_a_misspelt_history_is_not_made(command: str, tmp_path: Path) -> None:
    extra = [tmp_path / "out"] if command == "export" else []
    result = run("history", command, *extra, "--history", tmp_path / "none.db")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no such history")
    assert not (tmp_path / "none.db").exists()


def test_networks_are_listed() -> None:
    listed = json.loads(run("networks", "list", "--json").stdout)
    assert len({item["family"] for item in listed}) >= 10
    assert "squeezenet" in run("networks", "list", "--family", "squeezenet").stdout


def test_a_network_of_the_zoo_is_written_and_its_knobs_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    assert run("networks", "write", "onnx_squeezenet", "--output", path).exit_code == 0
    assert path.stat().st_size > 1000
    again = run("networks", "write", "onnx_squeezenet", "--output", path)
    assert again.exit_code == 2
    assert "exists" in again.stderr
    data = json.loads(run("knobs", path, "--json").stdout)
    assert len(data["knobs"]) >= 12
    assert data["routes"] >= 1000
    shown = run("knobs", path).stdout
    assert "session.intra_op_threads" in shown
    assert "left out" in shown


def test_the_command_to_tune_a_network_gives_its_shapes_and_ranges() -> None:
    chosen = Network(
        "n",
        "f",
        "test",
        lambda folder: folder,
        {"a:0": (1, 2), "b": ()},
        {"a:0": (-0.5, 1.0), "c d": (0.0, 100.0)},
    )
    words = shlex.split(tune_command(chosen, Path("x y.onnx")))
    assert words[:5] == ["routecast", "tune", "x y.onnx", "--family", "f"]
    values = dict.fromkeys(("--shapes", "--range"), ())
    for option, value in zip(words[5::2], words[6::2], strict=True):
        values[option] = (*values[option], value)
    assert parse_shapes(values["--shapes"]) == chosen.shapes
    assert parse_ranges(values["--range"]) == chosen.ranges


def test_an_unknown_network_is_one_line() -> None:
    result = run("networks", "write", "nonsense")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")


def test_the_command_exits_with_the_errors_status(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "routecast.tuner.cli", "compare", str(tmp_path / "none.db")],
        capture_output=True,
        text=True,
        env={**os.environ},
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f"error: no such history: {tmp_path / 'none.db'}\n"
