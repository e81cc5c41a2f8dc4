"""Measurements with their graphs and environments, in memory and as Parquet files."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from routecast.datasets.environment import Environment
from routecast.datasets.graph import Graph
from routecast.datasets.measurement import Measurement
from routecast.datasets.parquet import MEASUREMENTS

BUILTIN = Path(__file__).parent / "builtin"


@dataclass
class Records:
    """Measurements and what they refer to.

    Attributes:
        measurements: in the order they were stored.
        graphs: by fingerprint.
        environments: by identity.
    """

    measurements: list[Measurement] = field(default_factory=list)
    graphs: dict[str, Graph] = field(default_factory=dict)
    environments: dict[str, Environment] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.measurements)

    @classmethod
    def read_parquet(cls, folder: str | Path) -> Records:
        """Reads what ``write_parquet`` wrote.

        Raises:
            UsageError: the folder lacks a file, or one is damaged or of a newer schema.
        """
        from routecast.datasets import parquet

        return cls(*parquet.read(Path(folder)))

    def write_parquet(self, folder: str | Path) -> None:
        """Writes ``measurements.parquet``, ``graphs.parquet`` and ``environments.parquet``.

        Single numbers are kept exactly; block medians and layer times are kept as 32-bit floats.

        Raises:
            UsageError: the folder cannot be made.
            RoutecastError: writing failed, for example because the disk is full.
        """
        from routecast.datasets import parquet

        parquet.write(Path(folder), self.measurements, self.graphs, self.environments)

    @classmethod
    def read_journal(cls, path: str | Path) -> Records:
        """Reads a journal (see ``Journal``); a torn last line is skipped.

        Raises:
            UsageError: there is no such file, or a line in it is damaged.
        """
        from routecast.datasets.journal import read_journal

        return cls(*read_journal(Path(path)))

    def merged(self, other: Records) -> Records:
        """Both together, each measurement once; those of ``self`` come first."""
        held = {measurement.identity for measurement in self.measurements}
        added = []
        for measurement in other.measurements:
            if measurement.identity not in held:
                held.add(measurement.identity)
                added.append(measurement)
        return Records(
            [*self.measurements, *added],
            {**other.graphs, **self.graphs},
            {**other.environments, **self.environments},
        )

    def filtered(self, keep: Callable[[Measurement], bool]) -> Records:
        """The measurements that ``keep`` accepts, with the graphs and environments they refer to."""
        kept = [measurement for measurement in self.measurements if keep(measurement)]
        fingerprints = {measurement.fingerprint for measurement in kept}
        environments = {measurement.environment for measurement in kept}
        return Records(
            kept,
            {key: graph for key, graph in self.graphs.items() if key in fingerprints},
            {key: environment for key, environment in self.environments.items() if key in environments},
        )

    def of_families(self, families: Iterable[str]) -> Records:
        """The measurements of these families."""
        wanted = frozenset(families)
        return self.filtered(lambda measurement: measurement.family in wanted)

    def without_families(self, families: Iterable[str]) -> Records:
        """The measurements of all other families."""
        unwanted = frozenset(families)
        return self.filtered(lambda measurement: measurement.family not in unwanted)

    def families(self) -> Counter[str]:
        """Number of measurements of each family."""
        return Counter(measurement.family for measurement in self.measurements)

    def digest(self) -> str:
        """16 hexadecimal digits that tell two sets of measurements apart; their order does not matter."""
        identities = sorted(measurement.identity for measurement in self.measurements)
        return hashlib.sha256("\n".join(identities).encode()).hexdigest()[:16]


def builtin_records(folder: Path = BUILTIN) -> Records:
    """The history that routecast ships, from ``folder`` and the folders in it; empty when none is shipped.

    Raises:
        UsageError: a shipped file is damaged.
    """
    records = Records()
    for path in sorted(folder.rglob(MEASUREMENTS)):
        records = records.merged(Records.read_parquet(path.parent))
    return records
