"""``routecast history import`` and ``export`` with other tools' files, through the command line."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner, Result

from routecast.datasets.history import History
from routecast.datasets.journal import Journal
from routecast.datasets.route import Route
from routecast.tuner.cli import app
from routecast.tuner.cli.exchange import parse_route

GPU = "NVIDIA H100 PCIe"
HERE = Path(__file__).parent.parent / "datasets" / "importers"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"exchange_{name}", HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["history", *map(str, arguments)])


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A tuning cache with its model beside it, and one line that is cut."""
    samples = module("samples")
    module("conftest").write_network(tmp_path / "net.onnx")
    rows = [samples.row(0, samples.route(), 2.0), samples.row(1, samples.route(kgen__tiling="0"), 1.5), '{"iter": 2']
    (tmp_path / "tuned.json").write_text(samples.text([samples.header(), *rows]))
    return tmp_path / "tuned.json"


def test_a_cache_comes_in_once(cache: Path, tmp_path: Path) -> None:
    arguments = ("import", cache, "--device", GPU, "--history", tmp_path / "h.db")
    first = run(*arguments)
    assert first.exit_code == 0
    assert "not imported: a truncated or damaged line" in first.stdout
    assert f"2 of 2 measurements were new in {tmp_path / 'h.db'}" in first.stdout
    again = json.loads(run(*arguments, "--json").stdout)
    assert (again["measurements"], again["new"]) == (2, 0)
    assert again["files"] == [
        {
            "file": str(cache), "format": "trtexec-cache", "found": 3, "measurements": 2,
            "skipped": {"a truncated or damaged line": 1}, "notes": {},
        }
    ]  # fmt: skip
    with History(tmp_path / "h.db") as history:
        assert history.stats().measurements == 2


def test_when_nothing_comes_in_no_history_is_made(cache: Path, tmp_path: Path) -> None:
    result = run("import", cache, "--history", tmp_path / "h.db")
    assert result.exit_code == 2
    assert "it does not say which GPU: name it with --device" in result.stdout
    assert result.stderr == "error: nothing could be imported from tuned.json; the reasons are above\n"
    assert not (tmp_path / "h.db").exists()
    told = run("import", cache, cache.with_name("net.onnx"), "--history", tmp_path / "h.db", "--json")
    assert told.exit_code == 2
    assert [len(report["skipped"]) for report in json.loads(told.stdout)["files"]] == [2, 1]


def test_histories_and_caches_come_in_together(cache: Path, tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl"):
        pass
    with History(tmp_path / "empty.db"):
        pass
    sources = (tmp_path / "journal.jsonl", tmp_path / "empty.db", cache)
    result = run("import", *sources, "--device", GPU, "--history", tmp_path / "h.db")
    assert "2 of 2 measurements were new" in result.stdout


def test_a_format_may_be_named(cache: Path, tmp_path: Path) -> None:
    wrong = run("import", cache, "--format", "csv", "--history", tmp_path / "h.db")
    assert wrong.exit_code == 2
    assert "--format takes auto, trtexec-cache" in wrong.stderr
    arguments = ("--format", "trtexec-times", "--device", GPU, "--history", tmp_path / "h.db")
    assert "the file is truncated or damaged" in run("import", cache, *arguments).stdout


def test_a_history_goes_out_and_comes_back(cache: Path, tmp_path: Path) -> None:
    history = ("--history", tmp_path / "h.db")
    assert run("import", cache, "--device", GPU, *history).exit_code == 0
    out = tmp_path / "out.json"
    written = run("export", out, "--format", "trtexec-cache", "--model", "net", "--device", GPU, *history)
    assert written.stdout == f"2 routes of net written to {out}\n"
    assert "0 of 2 measurements were new" in run("import", out, "--device", GPU, *history).stdout
    expression = run("export", tmp_path / "knobs.txt", "--format", "trtexec-expression", *history)
    assert expression.stdout == f"1 knobs for --tuneBuildRouteFile written to {tmp_path / 'knobs.txt'}\n"
    assert (tmp_path / "knobs.txt").read_text() == "-kgen:tiling=[2|0]\n"


def test_an_export_says_what_is_missing(cache: Path, tmp_path: Path) -> None:
    history = ("--history", tmp_path / "h.db")
    cache.write_text(cache.read_text().replace("2.19.45", "9.9"))
    assert run("import", cache, "--device", GPU, *history).exit_code == 0
    result = run("export", tmp_path / "out.json", "--format", "trtexec-cache", *history)
    assert (result.exit_code, "made with tuner version 9.9" in result.stderr) == (2, True)
    result = run("export", tmp_path / "out.json", "--format", "trtexec-cache", "--model", "x", *history)
    assert result.stderr == "error: the history holds no measurement of model 'x'\n"


@pytest.mark.parametrize(
    ("text", "route"),
    [
        (None, None),
        ("default", Route()),
        ("-kgen:tiling=1 -a=2", Route({"compiler.kgen:tiling": "1", "compiler.a": "2"})),
        ("runtime.cuda_graph=off", Route({"runtime.cuda_graph": "off"})),
    ],
)
def test_a_route_is_named_in_either_form(text: str | None, route: Route | None) -> None:
    assert parse_route(text) == route
