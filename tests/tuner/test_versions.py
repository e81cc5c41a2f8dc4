"""A cost model that was trained on another version of the backend, from the command line to the search."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from routecast.costmodel import BUILTIN
from routecast.datasets.model import Model, open_model
from routecast.datasets.zoo import network
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.cli import app
from routecast.tuner.results import Observer
from routecast.tuner.search.model import ModelSearch
from routecast.tuner.tuning import TuneConfig, _Tune


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped weights as if they had been trained on ONNX Runtime 1.0."""
    folder = tmp_path_factory.mktemp("versions") / "old"
    shutil.copytree(BUILTIN, folder, ignore=shutil.ignore_patterns("__*"))
    path = folder / "model.json"
    content = json.loads(path.read_text())
    content["familiarity"]["versions"] = {"onnxruntime": ["1.0"]}
    path.write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return open_model(network("onnx_squeezenet").make(tmp_path_factory.mktemp("zoo")))


def test_predict_refuses_it_unless_told_otherwise(model: Model, old: Path) -> None:
    command = ["predict", str(model.path), "--cost-model", str(old), "--pool", "20"]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert refused.stderr.startswith("error: the cost model is refused: onnxruntime ")
    assert refused.stderr.endswith("use it nevertheless with --any-version\n")
    allowed = CliRunner().invoke(app, [*command, "--any-version"])
    assert allowed.exit_code == 0, allowed.output


@pytest.mark.parametrize("any_version", [False, True])
def test_a_tune_tries_one_knob_at_a_time_unless_told_otherwise(model: Model, old: Path, any_version: bool) -> None:
    backend = get_backend("onnxruntime")
    config = TuneConfig(cost_model=old, any_version=any_version)
    tune = SimpleNamespace(observer=Observer(), config=config, model=model)
    view = _Tune._view(tune, SimpleNamespace(environment=backend.environment()))  # type: ignore[arg-type]
    assert any("was never measured (only 1.0)" in line for line in tune.warnings) is not any_version
    assert any("--any-version relies on" in line for line in tune.warnings) is not any_version
    asked = ModelSearch(backend.space(model), view=view, builds=8).ask(8)
    if not any_version:
        assert {len(route) for route in asked} == {1}
