"""MLflow: where training runs are recorded, and which cost model is the champion."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from routecast.datasets.errors import RoutecastError

if TYPE_CHECKING:
    from mlflow import MlflowClient

MODEL = "routecast-cost-model"
CHAMPION = "champion"
EXPERIMENT = "routecast"
ARTIFACT = "model"
"""Folder of the cost model among the artifacts of a run."""
_BATCH = 500


def data_folder() -> Path:
    """Where the user's own runs and cost models are kept."""
    return Path("~/.local/share/routecast").expanduser()


def tracking_uri() -> str:
    """``$MLFLOW_TRACKING_URI``, or an SQLite store in the user's data folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{data_folder() / 'mlflow.db'}"


def _local_store(uri: str) -> Path | None:
    """The file of an SQLite store, None for other stores."""
    scheme, found, path = uri.partition("sqlite:///")
    return Path(path) if found and not scheme else None


@contextmanager
def _failures() -> Iterator[None]:
    """Turns what MLflow and its store raise into one line."""
    _quieten()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise RoutecastError(
            f"the MLflow store {tracking_uri()} failed: {reason}; check MLFLOW_TRACKING_URI"
        ) from error


def _quieten() -> None:
    """Before MLflow is imported: no telemetry, and no log lines between those of the command."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _client() -> MlflowClient:
    _quieten()
    uri = tracking_uri()
    local = _local_store(uri)
    if local is not None:
        local.parent.mkdir(parents=True, exist_ok=True)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


@dataclass(frozen=True)
class Champion:
    """A registered cost model.

    Attributes:
        version: its version in the registry.
        run: identity of the run that trained it.
        folder: a local copy.
    """

    version: str
    run: str
    folder: Path


class Tracker:
    """One training run in the store; a context manager that ends it, as failed when an exception leaves.

    Raises:
        RoutecastError: the store cannot be reached or written.
    """

    def __init__(self) -> None:
        """Connects, and begins a run."""
        with _failures():
            self._client = _client()
            run = self._client.create_run(self._experiment(), run_name=None)
        self.run_id: str = run.info.run_id
        self._artifacts = run.info.artifact_uri

    def __enter__(self) -> Tracker:
        """Goes on with the run."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Ends the run."""
        with _failures():
            self._client.set_terminated(self.run_id, "FINISHED" if kind is None else "FAILED")

    def describe(self, *, params: Mapping[str, object] | None = None, tags: Mapping[str, str] | None = None) -> None:
        """Records parameters and tags."""
        from mlflow.entities import Param, RunTag

        named = [Param(name, str(value)) for name, value in (params or {}).items()]
        marked = [RunTag(name, value) for name, value in (tags or {}).items()]
        with _failures():
            self._client.log_batch(self.run_id, params=named, tags=marked)

    def log(self, by_step: Mapping[int, Mapping[str, float]]) -> None:
        """Records figures by name, of each step."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        found = [
            Metric(_metric_name(name), value, now, step)
            for step, values in by_step.items()
            for name, value in values.items()
        ]
        with _failures():
            for start in range(0, len(found), _BATCH):
                self._client.log_batch(self.run_id, metrics=found[start : start + _BATCH])

    def keep(self, folder: Path, name: str) -> None:
        """Copies a folder to the artifacts of the run."""
        with _failures():
            self._client.log_artifacts(self.run_id, str(folder), name)

    def local_model(self) -> Path:
        """A local copy of the cost model among the artifacts, or the artifacts where they are local."""
        from mlflow.artifacts import download_artifacts

        with _failures():
            return Path(download_artifacts(artifact_uri=f"{self._artifacts}/{ARTIFACT}", tracking_uri=tracking_uri()))

    def register(self, tags: Mapping[str, str]) -> str:
        """Registers the cost model among the artifacts; returns its version."""
        from mlflow.exceptions import MlflowException

        with _failures():
            try:
                self._client.create_registered_model(MODEL)
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            source = f"{self._artifacts}/{ARTIFACT}"
            made = self._client.create_model_version(MODEL, source, self.run_id, tags=dict(tags))
        return str(made.version)

    def promote(self, version: str) -> None:
        """Moves the alias ``champion``."""
        with _failures():
            self._client.set_registered_model_alias(MODEL, CHAMPION, version)

    def champion(self) -> Champion | None:
        """The cost model that has the alias now."""
        return _champion(self._client)

    def _experiment(self) -> str:
        known = self._client.get_experiment_by_name(EXPERIMENT)
        if known is not None:
            return str(known.experiment_id)
        local = _local_store(tracking_uri())
        location = None if local is None else (local.parent / "mlartifacts").absolute().as_uri()
        return str(self._client.create_experiment(EXPERIMENT, artifact_location=location))


def _metric_name(name: str) -> str:
    """MLflow takes letters, digits and a few signs in names."""
    return "".join(sign if sign.isalnum() or sign in "_-./ " else "_" for sign in name)


def _champion(client: MlflowClient) -> Champion | None:
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    with _failures():
        try:
            found = client.get_model_version_by_alias(MODEL, CHAMPION)
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                return None
            raise
        folder = download_artifacts(artifact_uri=found.source, tracking_uri=tracking_uri())
    return Champion(str(found.version), str(found.run_id), Path(folder))


def load_champion() -> Path | None:
    """Folder of the champion's weights, None when there is no champion.

    MLflow is imported only when there is a store to look in.

    Raises:
        RoutecastError: the store cannot be reached or is damaged.
    """
    local = _local_store(tracking_uri())
    if local is not None and not local.exists():
        return None
    with _failures():
        client = _client()
    found = _champion(client)
    return None if found is None else found.folder
