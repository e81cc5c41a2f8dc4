from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import numpy

from routecast.costmodel import load_cost_model
from routecast.costmodel.ensemble import Ensemble
from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.graph import Graph
from routecast.datasets.route import Route

ROUTES = [Route(), Route.parse("session.threads=1"), Route.parse("new.knob=3 session.arena=off")]


@pytest.fixture
def saved(ensemble: Ensemble, tmp_path: Path) -> Path:
    ensemble.save(tmp_path / "model")
    return tmp_path / "model"


def test_loaded_predicts_exactly_what_was_saved(
    ensemble: Ensemble, saved: Path, graph: Graph, environment: Environment
) -> None:
    loaded = load_cost_model(saved)
    before = ensemble.view(graph, environment).predict(ROUTES)
    after = loaded.view(graph, environment).predict(ROUTES)
    assert np.array_equal(before.log_ratio, after.log_ratio)
    assert np.array_equal(before.ratio_high, after.ratio_high)
    assert np.array_equal(before.failure, after.failure)
    assert before.default_ms == after.default_ms
    assert (loaded.training, loaded.metrics) == (ensemble.training, ensemble.metrics)


def test_weights_are_small_and_not_pickled(saved: Path) -> None:
    assert {path.name for path in saved.iterdir()} == {"weights.safetensors", "trees.safetensors", "model.json"}
    assert (saved / "weights.safetensors").stat().st_size < 3 * 500_000


def change(folder: Path, **values: object) -> None:
    path = folder / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_other_schema_is_refused(saved: Path) -> None:
    change(saved, schema=99)
    with pytest.raises(UsageError, match="schema 99.*schema 3.*routecast train"):
        Ensemble.load(saved)


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no cost model in"):
        load_cost_model(tmp_path / "absent")


@pytest.mark.parametrize("text", ["", "not json", "[]", "{}"])
def test_description_that_is_none_is_refused(saved: Path, text: str) -> None:
    (saved / "model.json").write_text(text)
    with pytest.raises(UsageError, match="does not describe a cost model"):
        Ensemble.load(saved)


@pytest.mark.parametrize("name", ["weights.safetensors", "trees.safetensors"])
@pytest.mark.parametrize("content", [b"", b"random bytes", None])
def test_damaged_weights_are_refused(saved: Path, name: str, content: bytes | None) -> None:
    path = saved / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="weights"):
        Ensemble.load(saved)


@pytest.mark.parametrize(
    "values",
    [
        {"columns": [{"settings": [], "ops": []}] * 4},
        {"network": {"hidden": 8}},
        {"network": {"width": 8}},
        {"calibrations": {}},
    ],
)
def test_description_that_does_not_fit_the_weights_is_refused(saved: Path, values: dict[str, object]) -> None:
    change(saved, **values)
    with pytest.raises(UsageError, match="damaged"):
        Ensemble.load(saved)


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, routecast.costmodel; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_trees_that_point_outside_themselves_are_refused(saved: Path) -> None:
    trees = numpy.load_file(saved / "trees.safetensors")
    numpy.save_file({**trees, "1.right": np.array([3, 0, 0], np.uint16)}, saved / "trees.safetensors")
    with pytest.raises(UsageError, match="damaged"):
        Ensemble.load(saved)
