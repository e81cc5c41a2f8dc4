"""What a history holds, counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, func, select

from routecast.datasets.measurement import Status
from routecast.datasets.tables import STORED, environments, graphs, measurements


@dataclass(frozen=True)
class HistoryStats:
    """Counts of a history.

    Attributes:
        measurements, graphs, environments: how many of each.
        by_status, by_family, by_backend, by_environment, by_model: number of measurements, most first;
            environments by identity, and a backend is ``unknown`` when its environment was not stored.
        ok_share: share of the measurements whose status is ``ok``, 0 when there are none.
        first, last: ISO 8601 times of the first and last measurement, empty when there are none.
        bytes: size of the file and of its write-ahead log, or of the tables on a server with their indexes.
    """

    measurements: int
    graphs: int
    environments: int
    by_status: Mapping[str, int]
    by_family: Mapping[str, int]
    by_backend: Mapping[str, int]
    by_environment: Mapping[str, int]
    by_model: Mapping[str, int]
    ok_share: float
    first: str
    last: str
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form."""
        return asdict(self)


def summarise(connection: Connection, path: Path | None) -> HistoryStats:
    """Counts what a database holds, a file at ``path`` or one on a server."""
    by_status = _counts(connection, measurements.c.status)
    by_environment = _counts(connection, measurements.c.environment)
    backends = {
        identity: str(json.loads(content)["backend"])
        for identity, content in connection.execute(select(environments)).all()
    }
    by_backend: Counter[str] = Counter()
    for identity, number in by_environment.items():
        by_backend[backends.get(identity, "unknown")] += number
    total = sum(by_status.values())
    first, last = connection.execute(select(func.min(measurements.c.created), func.max(measurements.c.created))).one()
    return HistoryStats(
        measurements=total,
        graphs=connection.scalar(select(func.count()).select_from(graphs)) or 0,
        environments=len(backends),
        by_status=by_status,
        by_family=_counts(connection, measurements.c.family),
        by_backend=dict(by_backend.most_common()),
        by_environment=by_environment,
        by_model=_counts(connection, measurements.c.model),
        ok_share=by_status.get(Status.OK, 0) / total if total else 0.0,
        first=first or "",
        last=last or "",
        bytes=_size(connection, path),
    )


def _size(connection: Connection, path: Path | None) -> int:
    if path is not None:
        return sum(part.stat().st_size for part in (path, Path(f"{path}-wal")) if part.exists())
    return sum(connection.scalar(select(func.pg_total_relation_size(table.name))) or 0 for table in STORED)


def _counts(connection: Connection, column: Column[Any]) -> dict[str, int]:
    number = func.count()
    rows = connection.execute(select(column, number).group_by(column).order_by(number.desc(), column)).all()
    return {str(value): int(count) for value, count in rows}
