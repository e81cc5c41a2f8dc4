"""The cost models in MLflow's registry: which is the champion, which was before, and how the aliases move.

The alias ``champion`` is what predicts; ``previous`` is what ``roll_back`` puts back. Every promoted version also says
in a tag what it replaced, so that going back goes on beyond one step, and works when a promotion was interrupted
between the two aliases. Whenever a process dies, ``champion`` names a cost model that was judged.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from routecast.costmodel import load_cost_model
from routecast.datasets.errors import UsageError
from routecast.training.mlflow_store import connect, data_folder, failures, local_store, tracking_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

MODEL = "routecast-cost-model"
CHAMPION, PREVIOUS = "champion", "previous"
SHIPPED = "shipped"
"""What stands for a version where it is the shipped weights."""
REPLACED, ROLLED_BACK = "replaced", "rolled_back"
"""Tags of a version: what it replaced when it became the champion, and when it ceased to be the champion again."""
_ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


@dataclass(frozen=True)
class Registered:
    """A registered cost model.

    Attributes:
        version: its version in the registry.
        run: identity of the run that trained it.
        folder: a local copy.
        tags: of the version.
    """

    version: str
    run: str
    folder: Path
    tags: Mapping[str, str] = field(default_factory=dict)


def open_registry() -> Registry | None:
    """The registry of the store, None when there is no store yet: looking does not make one."""
    local = local_store(tracking_uri())
    return None if local is not None and not local.exists() else Registry()


class Registry:
    """The registered cost models.

    Raises:
        RoutecastError: from every method, when the store cannot be reached or written.
    """

    def __init__(self, client: MlflowClient | None = None) -> None:
        """Connects."""
        with failures():
            self._client = client or connect()

    def register(self, source: str, run: str, tags: Mapping[str, str]) -> str:
        """Registers the cost model at an artifact URI of a run; returns its version."""
        from mlflow.exceptions import MlflowException

        with failures():
            try:
                self._client.create_registered_model(MODEL)
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            made = self._client.create_model_version(MODEL, source, run, tags=dict(tags))
        return str(made.version)

    def tag(self, version: str, name: str, value: str) -> None:
        """Sets a tag of a version."""
        with failures():
            self._client.set_model_version_tag(MODEL, version, name, value)

    def champion(self) -> Registered | None:
        """The cost model that has the alias ``champion``."""
        found = self._aliased(CHAMPION)
        return None if found is None else self._copied(found)

    def latest(self) -> Registered | None:
        """The cost model that was registered last, champion or not."""
        with failures():
            found = self._client.search_model_versions(
                f"name='{MODEL}'", order_by=["version_number DESC"], max_results=1
            )
        return self._copied(found[0]) if found else None

    def promote(self, version: str, over: Registered | None, replaced: str | None) -> bool:
        """Moves the alias ``champion``, unless somebody else has moved it meanwhile.

        Args:
            version: what becomes the champion.
            over: the champion that it has beaten.
            replaced: what predicted until now: a version, ``SHIPPED``, or None.

        Returns:
            Whether it was moved.
        """
        now = self._aliased(CHAMPION)
        if (now and str(now.version)) != (over and over.version):
            return False
        self.tag(version, REPLACED, replaced or "")
        self._point(PREVIOUS, None if over is None else over.version)
        self._point(CHAMPION, version)
        return True

    def roll_back(self, *, dry_run: bool = False) -> tuple[str, str]:
        """Puts back what the champion replaced.

        Args:
            dry_run: only says what would be put back.

        Returns:
            The version that was the champion, and what is now: a version, or ``SHIPPED``.

        Raises:
            UsageError: there is nothing to go back to, or it cannot be used any more.
        """
        champion = self._aliased(CHAMPION)
        if champion is None:
            raise UsageError("there is no champion to roll back: the shipped weights are in use")
        target = self._before(champion)
        if target is not None:
            load_cost_model(self._copied(target).folder)
        was, now = str(champion.version), SHIPPED if target is None else str(target.version)
        if not dry_run:
            self.tag(was, ROLLED_BACK, datetime.now(UTC).isoformat(timespec="seconds"))
            self._point(CHAMPION, None if target is None else now)
            earlier = None if target is None else self._version(target.tags.get(REPLACED, ""))
            self._point(PREVIOUS, None if earlier is None else str(earlier.version))
        return was, now

    def _before(self, champion: ModelVersion) -> ModelVersion | None:
        """What to put back, None for the shipped weights."""
        previous = self._aliased(PREVIOUS)
        if previous is not None and previous.version != champion.version:
            return previous
        replaced = champion.tags.get(REPLACED, "")
        if replaced == SHIPPED:
            return None
        found = self._version(replaced)
        if found is None:
            raise UsageError(
                f"champion {champion.version} replaced nothing that is still registered: "
                f"give the alias {PREVIOUS} of {MODEL} to the version wanted, in MLflow"
            )
        return found

    def _version(self, version: str) -> ModelVersion | None:
        if not version.isdigit():
            return None
        return self._found(lambda: self._client.get_model_version(MODEL, version))

    def _aliased(self, alias: str) -> ModelVersion | None:
        return self._found(lambda: self._client.get_model_version_by_alias(MODEL, alias))

    @staticmethod
    def _found(ask: Callable[[], ModelVersion]) -> ModelVersion | None:
        from mlflow.exceptions import MlflowException

        with failures():
            try:
                return ask()
            except MlflowException as error:
                if error.error_code in _ABSENT:
                    return None
                raise

    def _point(self, alias: str, version: str | None) -> None:
        """Gives an alias to a version, or to none."""
        with failures():
            if version is not None:
                self._client.set_registered_model_alias(MODEL, alias, version)
            elif self._aliased(alias) is not None:
                self._client.delete_registered_model_alias(MODEL, alias)

    @staticmethod
    def _copied(found: ModelVersion) -> Registered:
        with failures():
            folder = _local_copy(str(found.source), str(found.run_id))
        return Registered(str(found.version), str(found.run_id), folder, dict(found.tags))


def _local_copy(source: str, run: str) -> Path:
    """The artifacts where they are local, else a copy in the user's folder: they never change once registered."""
    from mlflow.artifacts import download_artifacts

    if source.startswith("file:"):
        return Path(download_artifacts(artifact_uri=source))
    copy = data_folder() / "cost-models" / run
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=copy.parent) as scratch:
            made = download_artifacts(artifact_uri=source, tracking_uri=tracking_uri(), dst_path=scratch)
            with suppress(OSError):  # another process was first
                Path(made).rename(copy)
    return copy
