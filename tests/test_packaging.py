"""What a wheel holds, and the one direction of imports."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("datasets", "costmodel", "training", "tuner")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def test_every_folder_is_packaged():
    folders = {path for package in PACKAGES for path in (ROOT / package, *(ROOT / package).rglob("*")) if path.is_dir()}
    expected = {"routecast." + ".".join(path.relative_to(ROOT).parts) for path in folders if path.name != "__pycache__"}
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert sorted(named) == sorted(expected)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    rank = PACKAGES.index(path.relative_to(ROOT).parts[0])
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            parts = name.split(".")
            if parts[0] == "routecast" and len(parts) > 1:
                assert PACKAGES.index(parts[1]) <= rank, f"{path} imports {name}"


def test_the_public_names_are_what_the_readme_says():
    """Whatever was imported before, a function is never hidden by a module of its name."""
    code = (
        "import importlib, sys\n"
        "for first in ('routecast.tuner.tuning', 'routecast.training.run', 'routecast.tuner'):\n"
        "    for name in [name for name in sys.modules if name.startswith('routecast')]:\n"
        "        del sys.modules[name]\n"  # torch and MLflow stay: they take seconds
        "    importlib.import_module(first)\n"
        "    from routecast.tuner import tune, collect\n"
        "    from routecast.costmodel import load_cost_model\n"
        "    from routecast.training import train\n"
        "    from routecast.datasets import History\n"
        "    assert all(map(callable, (tune, collect, load_cost_model, train, History))), first\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
