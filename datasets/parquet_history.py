"""A history in Parquet files, read as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from routecast.datasets import parquet
from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.graph import Graph
from routecast.datasets.measurement import Measurement
from routecast.datasets.parquet import MEASUREMENTS
from routecast.datasets.records import BUILTIN, Records


class ParquetHistory:
    """The three files that ``Records.write_parquet`` makes, of which the measurements are never all in memory."""

    def __init__(self, folder: str | Path) -> None:
        """Opens a folder.

        Raises:
            UsageError: the folder lacks a file, or one is damaged or of a newer schema.
        """
        self.folder = Path(folder)
        self._count = parquet.count(self.folder)
        self._graphs = parquet.read_graphs(self.folder)
        self._environments = parquet.read_environments(self.folder)

    def __len__(self) -> int:
        return self._count

    def measurements(self, *, lean: bool = False) -> Iterator[Measurement]:
        """Reads the measurements in the order they were stored, some hundred at a time.

        Args:
            lean: leaves out the local profiles of all routes but the default one, which is several times faster.

        Raises:
            UsageError: the file is damaged.
        """
        return parquet.stream(self.folder, lean=lean)

    def records(self) -> Records:
        """All it holds, in memory.

        Raises:
            UsageError: a file is damaged.
        """
        return Records.read_parquet(self.folder)

    def graph(self, fingerprint: str) -> Graph:
        """The graph with this fingerprint.

        Raises:
            UsageError: the files do not hold it.
        """
        return Graph.from_json(self._content(self._graphs, fingerprint, "graph"))

    def environment(self, identity: str) -> Environment:
        """The environment with this identity.

        Raises:
            UsageError: the files do not hold it.
        """
        return Environment.from_json(self._content(self._environments, identity, "environment"))

    def _content(self, texts: Mapping[str, str], key: str, what: str) -> dict[str, Any]:
        if key not in texts:
            raise UsageError(f"the history {self.folder} holds no {what} {key!r}")
        try:
            content: dict[str, Any] = json.loads(texts[key])
        except ValueError as error:
            raise UsageError(f"the history {self.folder} holds a damaged {what} {key!r}: {error}") from error
        return content


def builtin_histories(folder: Path = BUILTIN) -> list[ParquetHistory]:
    """The histories that routecast ships, from ``folder`` and the folders in it; empty when none is shipped.

    Raises:
        UsageError: a shipped file is damaged.
    """
    return [ParquetHistory(path.parent) for path in sorted(folder.rglob(MEASUREMENTS))]
