"""Tests of what the package re-exports."""

from __future__ import annotations

import subprocess
import sys

import pytest

import routecast.datasets


@pytest.mark.parametrize("name", routecast.datasets.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(routecast.datasets, name).__name__ == name


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = routecast.datasets.Nonsense
    assert set(routecast.datasets.__all__) <= set(dir(routecast.datasets))


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import routecast.datasets", {"numpy", "onnx", "sqlalchemy", "pyarrow", "torch"}),
        (
            "from routecast.datasets import Route, Records, Journal",
            {"onnx", "sqlalchemy", "pyarrow", "torch"},
        ),
        ("from routecast.datasets import open_model", {"sqlalchemy", "pyarrow", "torch", "onnxruntime"}),
        ("from routecast.datasets import History", {"onnx", "pyarrow", "torch"}),
    ],
)
def test_imports_stay_light(statement: str, unwanted: set[str]) -> None:
    script = f"{statement}\nimport sys\nprint(' '.join(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not unwanted & set(result.stdout.split())
