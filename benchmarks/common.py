"""What the benchmarks share: where results go, and the line about machine and versions that each carries."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from routecast.datasets.environment import Environment
from routecast.tuner.backends.registry import get_backend

RESULTS = Path(__file__).parent / "results"


def save(name: str, rows: Any, environment: Environment | None = None, **settings: Any) -> Path:
    """Writes ``results/<name>.json`` with the machine and the versions beside the rows.

    Args:
        name: of the benchmark.
        rows: what it found, as JSON values.
        environment: where that was measured; None is this machine with ONNX Runtime.
        settings: of the benchmark.
    """
    here = environment is None
    environment = environment or get_backend("onnxruntime").environment()
    content = {
        "benchmark": name,
        "date": datetime.now(UTC).date().isoformat(),
        "device": environment.device,
        "numbers": dict(environment.numbers),
        **({"python": platform.python_version()} if here else {"driver": environment.driver}),
        "versions": dict(environment.versions),
        "settings": settings,
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"written: {path}")
    return path


def load(name: str) -> list[dict[str, Any]]:
    """The rows of an earlier run, none without one."""
    path = RESULTS / f"{name}.json"
    return list(json.loads(path.read_text())["rows"]) if path.exists() else []
