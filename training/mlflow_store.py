"""The MLflow store: where it is, how it is reached, and how its failures are said without its password."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from routecast.datasets.errors import RoutecastError

if TYPE_CHECKING:
    from mlflow import MlflowClient

_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",  # MLflow sets its loggers' levels when it is imported
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # it would stand in JSON output
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
_CREDENTIALS = (re.compile(r"(?<=://)[^/@\s]+@"), re.compile(r"(?i)(?<=password=)[^&\s]+"))


def data_folder() -> Path:
    """Where the user's own runs and cost models are kept."""
    return Path("~/.local/share/routecast").expanduser()


def tracking_uri() -> str:
    """``$MLFLOW_TRACKING_URI``, or an SQLite store in the user's data folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{data_folder() / 'mlflow.db'}"


def local_store(uri: str) -> Path | None:
    """The file of an SQLite store, None for other stores."""
    scheme, found, path = uri.partition("sqlite:///")
    return Path(path) if found and not scheme else None


def without_credentials(text: str) -> str:
    """A text with the users and passwords of the URLs in it left out."""
    for pattern in _CREDENTIALS:
        text = pattern.sub("", text)
    return text


@contextmanager
def failures() -> Iterator[None]:
    """Turns what MLflow and its store raise into one line."""
    quieten()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        said = without_credentials(f"the MLflow store {tracking_uri()} failed: {reason}; check MLFLOW_TRACKING_URI")
        raise RoutecastError(said) from None  # the cause may repeat the credentials


def quieten() -> None:
    """Before MLflow is imported: no telemetry, and no lines or bars between those of the command."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)


def connect() -> MlflowClient:
    """A client of the store; the folder of an SQLite store is made."""
    quieten()
    uri = tracking_uri()
    local = local_store(uri)
    if local is not None:
        local.parent.mkdir(parents=True, exist_ok=True)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)
