"""What works on this machine, what does not and why, and what to install."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from routecast.datasets.errors import RoutecastError
from routecast.tuner.backends.base import Check, one_line
from routecast.tuner.backends.registry import backend_names, get_backend
from routecast.tuner.sources import without_password

_OLDEST_PYTHON = (3, 11)
_LEAST_DISK_GB = 2.0
_LEAST_MEMORY_GB = 2.0
# Packages that a part of routecast cannot do without, by what it is for; the backends check their own.
_PACKAGES = {
    "torch": "the cost model",
    "torch-geometric": "the cost model",
    "sqlalchemy": "the history",
    "pyarrow": "export and import of histories",
    "mlflow": "tracking of training",
    "scikit-learn": "baselines",
    "matplotlib": "figures of reports",
    "jinja2": "reports",
}
_EXTRAS = {"optuna": ("the strategy tpe", "optuna"), "psycopg": ("a history in PostgreSQL", "postgres")}
"""Use and extra of each optional package."""


@dataclass(frozen=True)
class Section:
    """Checks that belong together.

    Attributes:
        title: what they are about.
        checks: the findings.
        optional: whether routecast works without what they look at.
    """

    title: str
    checks: tuple[Check, ...]
    optional: bool = False

    @property
    def ok(self) -> bool:
        """Whether all of it works."""
        return all(check.ok for check in self.checks)


def examine(history: str | Path | None = None) -> list[Section]:
    """Looks at everything; a check that raises becomes a finding.

    Args:
        history: the history to look at; None is the user's own.
    """
    return [
        Section("machine", (_python(), _disk(), _memory())),
        Section("packages", tuple(_package(name, purpose) for name, purpose in _PACKAGES.items())),
        Section(
            "extras", tuple(_package(name, use, extra=extra) for name, (use, extra) in _EXTRAS.items()), optional=True
        ),
        *(Section(f"backend {name}", _backend(name)) for name in backend_names()),
        Section(
            "learning",
            (
                _guarded("cost model", _cost_model, "routecast train"),
                _guarded("history", lambda: _history(history), "set ROUTECAST_HISTORY or give --history"),
                _guarded("shipped history", _shipped, "reinstall routecast"),
                _guarded("MLflow store", _tracking, "set MLFLOW_TRACKING_URI to a store that can be reached"),
            ),
            optional=True,
        ),
    ]


def _guarded(what: str, look: Callable[[], Check], fix: str) -> Check:
    """A check whose failure to run is a finding too."""
    try:
        return look()
    except Exception as error:
        detail = one_line(error)
        return Check(
            what,
            False,
            detail if isinstance(error, RoutecastError) else f"{type(error).__name__}: {detail}",
            fix,
        )


def _python() -> Check:
    ok = sys.version_info >= _OLDEST_PYTHON
    fix = "" if ok else f"use Python {'.'.join(map(str, _OLDEST_PYTHON))} or later"
    return Check("Python", ok, f"{platform.python_version()} on {platform.system()} {platform.machine()}", fix)


def _disk() -> Check:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free / 1e9
    ok = free >= _LEAST_DISK_GB
    return Check(
        "disk",
        ok,
        f"{free:.1f} GB free in {folder}",
        "" if ok else "free some, or set TMPDIR to another disk",
    )


def _memory() -> Check:
    import psutil

    free = psutil.virtual_memory().available / 1e9
    ok = free >= _LEAST_MEMORY_GB
    detail = f"{free:.1f} GB free, {os.cpu_count()} processors"
    return Check("memory", ok, detail, "" if ok else "close other programs")


def _package(name: str, purpose: str, extra: str | None = None) -> Check:
    try:
        return Check(name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        target = f"'routecast[{extra}]'" if extra else name
        return Check(name, False, f"not installed; needed for {purpose}", f"pip install {target}")


def _backend(name: str) -> tuple[Check, ...]:
    try:
        return tuple(get_backend(name).checks())
    except Exception as error:
        return (Check(name, False, one_line(error), "pip install --force-reinstall routecast"),)


def _cost_model() -> Check:
    from routecast.training import find_cost_model

    found = find_cost_model(None)
    if found is None:
        return Check("cost model", False, "none is shipped or registered", "routecast train")
    known = (f"{backend} {' '.join(seen)}" for backend, seen in found.familiarity.versions.items())
    return Check("cost model", True, f"{found.name}, trained on {', '.join(known) or 'unknown versions'}")


def _history(history: str | Path | None) -> Check:
    from routecast.datasets.history import History
    from routecast.datasets.places import exists, locate, shown

    url = locate(history)
    if not exists(url):
        return Check("history", True, f"none yet; the first measurement makes {shown(url)}")
    with History(history) as opened:
        return Check("history", True, f"{len(opened):,} measurements in {opened.place}")


def _shipped() -> Check:
    from routecast.datasets.parquet_history import builtin_histories

    count = sum(map(len, builtin_histories()))
    if not count:
        return Check("shipped history", False, "none is shipped", "routecast collect")
    return Check("shipped history", True, f"{count:,} measurements")


def _tracking() -> Check:
    from routecast.training import load_champion, tracking_uri

    found = "no champion yet" if load_champion() is None else "it has a champion"
    return Check("MLflow store", True, f"{without_password(tracking_uri())}: {found}")
