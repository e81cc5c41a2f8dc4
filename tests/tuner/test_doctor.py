from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from routecast.datasets.errors import RoutecastError
from routecast.tuner import doctor
from routecast.tuner.backends.base import Check
from routecast.tuner.backends.registry import backend_names
from routecast.tuner.cli import app


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks that load MLflow and torch are tested on their own."""
    monkeypatch.setattr(doctor, "_tracking", lambda: Check("MLflow store", True, "made up"))
    monkeypatch.setattr(doctor, "_cost_model", lambda: Check("cost model", True, "made up"))


def _by_title(path: Path) -> dict[str, doctor.Section]:
    return {section.title: section for section in doctor.examine(path)}


def test_this_machine_works(tmp_path: Path) -> None:
    sections = _by_title(tmp_path / "h.db")
    for title in ("machine", "packages", "backend onnxruntime"):
        assert sections[title].ok, sections[title]
        assert sections[title].checks


def test_looking_at_a_history_does_not_make_one(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    checks = {check.what: check for check in _by_title(path)["learning"].checks}
    assert checks["history"].ok
    assert "none yet" in checks["history"].detail
    assert not path.exists()


def test_a_broken_history_is_a_finding_with_a_fix(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    path.write_bytes(b"not a database" * 100)
    checks = {check.what: check for check in _by_title(path)["learning"].checks}
    assert not checks["history"].ok
    assert checks["history"].detail
    assert checks["history"].fix


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name in ("mlflow", "optuna"):
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    sections = _by_title(tmp_path / "h.db")
    missing = {
        check.what: check.fix for name in ("packages", "extras") for check in sections[name].checks if not check.ok
    }
    assert missing == {"mlflow": "pip install mlflow", "optuna": "pip install 'routecast[optuna]'"}
    assert not sections["packages"].ok
    assert sections["extras"].optional


def test_a_check_that_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail() -> Check:
        raise ValueError("first line\nsecond line")

    monkeypatch.setattr(doctor, "_shipped", fail)
    checks = {check.what: check for check in _by_title(tmp_path / "h.db")["learning"].checks}
    assert checks["shipped history"] == Check("shipped history", False, "ValueError: first line", "reinstall routecast")


def test_the_command_shows_findings_and_fixes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = (Check("device", False, "driver [too] old", "install driver 999"),)
    monkeypatch.setattr(doctor, "_backend", lambda name: found)
    shown = CliRunner().invoke(app, ["doctor", "--history", str(tmp_path / "h.db")])
    assert shown.exit_code == 1  # no backend works
    assert "no device: driver [too] old" in shown.output
    assert "-> install driver 999" in shown.output


def test_json_has_every_section(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["doctor", "--json", "--history", str(tmp_path / "h.db")])
    assert shown.exit_code == 0
    titles = [section["title"] for section in json.loads(shown.stdout)]
    backends = [f"backend {name}" for name in backend_names()]
    assert titles == ["machine", "packages", "extras", *backends, "learning"]


def test_a_backend_that_cannot_be_imported_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(name: str) -> None:
        raise RoutecastError(f"{name} is broken")

    monkeypatch.setattr(doctor, "get_backend", fail)
    (check,) = _by_title(tmp_path / "h.db")["backend onnxruntime"].checks
    assert not check.ok
    assert check.detail == "onnxruntime is broken"
