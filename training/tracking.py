"""Training runs in MLflow: what each was given, what came out, and the cost model it made."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from routecast.training.mlflow_store import connect, failures, local_store, tracking_uri
from routecast.training.registry import MODEL, Registry, open_registry

if TYPE_CHECKING:
    from mlflow.entities import Metric

__all__ = ["ARTIFACT", "EXPERIMENT", "MODEL", "Tracker", "annotate", "load_champion", "tracking_uri"]

EXPERIMENT = "routecast"
ARTIFACT = "model"
"""Folder of the cost model among the artifacts of a run."""
_BATCH = 500
_PROCESS = "process"
"""Tag of a run: process, its start and its host, by which a run can be told whose process was killed."""
_CLOCK_SECONDS = 60.0
"""By how much setting the clock may move the start of a process."""


class Tracker:
    """One training run in the store; a context manager that ends it, as failed when an exception leaves.

    Attributes:
        run_id: identity of the run.
        registry: the registered cost models of the same store.

    Raises:
        RoutecastError: the store cannot be reached or written.
    """

    def __init__(self) -> None:
        """Connects, ends runs whose process on this host is gone, and begins a run."""
        with failures():
            self._client = connect()
            experiment = self._experiment()
            for left in self._client.search_runs([experiment], "attributes.status = 'RUNNING'"):
                if _is_gone(left.data.tags.get(_PROCESS, "")):
                    self._client.set_terminated(left.info.run_id, "KILLED")
            run = self._client.create_run(experiment, tags={_PROCESS: _named(psutil.Process())})
        self.registry = Registry(self._client)
        self.run_id: str = run.info.run_id
        self._artifacts = run.info.artifact_uri

    def __enter__(self) -> Tracker:
        """Goes on with the run."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Ends the run."""
        with failures():
            self._client.set_terminated(self.run_id, "FINISHED" if kind is None else "FAILED")

    def describe(self, *, params: Mapping[str, object] | None = None, tags: Mapping[str, str] | None = None) -> None:
        """Records parameters and tags."""
        from mlflow.entities import Param, RunTag

        named = [Param(name, str(value)) for name, value in (params or {}).items()]
        marked = [RunTag(name, value) for name, value in (tags or {}).items()]
        with failures():
            self._client.log_batch(self.run_id, params=named, tags=marked)

    def log(self, by_step: Mapping[int, Mapping[str, float]]) -> None:
        """Records figures by name, of each step."""
        found = [_metric(name, value, step) for step, values in by_step.items() for name, value in values.items()]
        with failures():
            for start in range(0, len(found), _BATCH):
                self._client.log_batch(self.run_id, metrics=found[start : start + _BATCH])

    def keep(self, folder: Path, name: str) -> None:
        """Copies a folder to the artifacts of the run."""
        with failures():
            self._client.log_artifacts(self.run_id, str(folder), name)

    def local_model(self) -> Path:
        """A local copy of the cost model among the artifacts, or the artifacts where they are local."""
        from mlflow.artifacts import download_artifacts

        with failures():
            return Path(download_artifacts(artifact_uri=self._source, tracking_uri=tracking_uri()))

    def register(self, tags: Mapping[str, str]) -> str:
        """Registers the cost model among the artifacts; returns its version."""
        return self.registry.register(self._source, self.run_id, tags)

    @property
    def _source(self) -> str:
        return f"{self._artifacts}/{ARTIFACT}"

    def _experiment(self) -> str:
        known = self._client.get_experiment_by_name(EXPERIMENT)
        if known is not None:
            return str(known.experiment_id)
        local = local_store(tracking_uri())
        location = None if local is None else (local.parent / "mlartifacts").absolute().as_uri()
        return str(self._client.create_experiment(EXPERIMENT, artifact_location=location))


def annotate(run_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]) -> None:
    """Adds figures and tags to a run that has ended."""
    from mlflow.entities import RunTag

    with failures():
        connect().log_batch(
            run_id,
            metrics=[_metric(name, value, 0) for name, value in metrics.items()],
            tags=[RunTag(name, value) for name, value in tags.items()],
        )


def _named(process: psutil.Process) -> str:
    return f"{process.pid} {process.create_time():.0f} {platform.node()}"


def _is_gone(name: str) -> bool:
    """Whether a process so named was one of this host and runs no more; its number may have gone to another."""
    number, began, host = name.split(" ", 2) if name else ("", "", "")
    if host != platform.node():
        return False
    try:
        of_that_number: float = psutil.Process(int(number)).create_time()
    except psutil.NoSuchProcess:
        return True
    return abs(of_that_number - float(began)) > _CLOCK_SECONDS


def _metric(name: str, value: float, step: int) -> Metric:
    from mlflow.entities import Metric

    return Metric(_metric_name(name), value, int(1000 * time.time()), step)


def _metric_name(name: str) -> str:
    """MLflow takes letters, digits and a few signs in names."""
    return "".join(sign if sign.isalnum() or sign in "_-./ " else "_" for sign in name)


def load_champion() -> Path | None:
    """Folder of the champion's weights, None when there is no champion.

    MLflow is imported only when there is a store to look in.

    Raises:
        RoutecastError: the store cannot be reached or is damaged.
    """
    registry = open_registry()
    found = None if registry is None else registry.champion()
    return None if found is None else found.folder
