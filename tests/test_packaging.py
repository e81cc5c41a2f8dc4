"""What a wheel holds, and the one direction of imports."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("datasets", "costmodel", "training", "tuner")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def test_every_package_folder_is_packaged():
    folders = {path.parent.relative_to(ROOT) for path in SOURCES}
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert sorted(named) == sorted("routecast." + ".".join(folder.parts) for folder in folders)


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
