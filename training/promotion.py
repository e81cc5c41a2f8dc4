"""Whether a challenger beats the champion: both judged on the same held-out measurements.

The rows are the challenger's out-of-fold predictions: each was predicted by a member that never saw its
family. A champion that trained on some of those rows must not be judged by what it remembers, so every saved
cost model carries its own out-of-fold predictions, and of each row counts

- for a row it was trained on: its stored out-of-fold prediction;
- for another row of a family it was trained on: what its member that was trained without that family predicts
  now;
- for a row of a family it never saw: what the whole ensemble predicts now.

The winner is who orders more pairs of routes rightly, among those of one model that differ by 2 % or more;
the share is averaged over models.

Only rows of backends that both know count: on a backend that the champion never saw it can only guess, and a
challenger that is worse wherever the champion is used would win there. What the challenger has learned besides breaks
a tie: it then need not be better, only no worse than ``TOLERANCE``. A challenger that lacks a backend of the champion
never wins, since the champion's users would lose it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from routecast.datasets.errors import UsageError
from routecast.datasets.route import Route
from routecast.training import metrics
from routecast.training.out_of_fold import OutOfFold

if TYPE_CHECKING:
    from routecast.costmodel.base import Array
    from routecast.costmodel.ensemble import Ensemble
    from routecast.datasets.records import Records

FILE = "out_of_fold.parquet"
"""Beside the weights in the folder of a saved cost model."""
_CLEAR = 0.02

TOLERANCE = 0.01
"""Share of pairs that a challenger with a further backend may be worse by."""

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Remembered:
    """Out-of-fold predictions of a saved cost model.

    Attributes:
        predicted: log ratio by (fingerprint, environment, route).
        members: the member trained without it, by family.
    """

    predicted: Mapping[Key, float]
    members: Mapping[str, int]


@dataclass(frozen=True)
class Contest:
    """Shares of pairs ordered rightly on the same rows; NaN when no row could be compared.

    Attributes:
        challenger, champion: the shares.
        models, routes: how many were compared.
        gained, lost: backends that only the challenger knows, and those that only the champion knows.
    """

    challenger: float
    champion: float
    models: int
    routes: int
    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    @property
    def won(self) -> bool:
        """Whether the challenger is to take the champion's place."""
        tied = bool(self.gained) and self.challenger >= self.champion - TOLERANCE
        return not self.lost and (tied or self.challenger > self.champion)

    def verdict(self, rival: str) -> str:
        """One line: who ordered how much rightly, on what.

        Args:
            rival: what the champion is called.
        """
        if self.lost:
            return (
                f"it has not learned {', '.join(self.lost)}, which {rival} knows; train with measurements of it as well"
            )
        if not self.models:
            return f"no family was held out that both know, so nothing shows that {rival} is beaten"
        said = (
            f"{self.challenger:.4f} of the pairs ordered rightly against {self.champion:.4f} by {rival}, "
            f"on {self.routes} held-out routes of {self.models} models"
        )
        return f"{said}; it also knows {', '.join(self.gained)}" if self.gained else said


def save_out_of_fold(found: OutOfFold, folder: Path) -> None:
    """Writes the predictions of the routes beside the weights."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = found.routes
    table = pa.table(
        {
            "fingerprint": list(rows.fingerprint),
            "environment": list(rows.environment),
            "model": list(rows.model),
            "family": list(rows.family),
            "route": [str(route) for route in rows.routes],
            "member": rows.member.astype(np.int32),
            "log_ratio": rows.log_ratio,
            "predicted": rows.predicted,
            "low": rows.low,
            "high": rows.high,
            "failed": rows.failed,
            "failure": rows.failure,
        }
    )
    pq.write_table(table, folder / FILE, compression="zstd")


def remembered(folder: Path) -> Remembered:
    """Reads what ``save_out_of_fold`` wrote; nothing is remembered where it wrote nothing.

    Raises:
        UsageError: the file is damaged.
    """
    columns = read_out_of_fold(folder, ("fingerprint", "environment", "route", "predicted", "family", "member"))
    fingerprint, environment, route, predicted, family, member = columns
    keys = zip(fingerprint, environment, route, strict=True)
    return Remembered(dict(zip(keys, predicted, strict=True)), dict(zip(family, member, strict=True)))


def read_out_of_fold(folder: Path, columns: Sequence[str]) -> list[list[Any]]:
    """Columns of what ``save_out_of_fold`` wrote, empty ones where it wrote nothing.

    Raises:
        UsageError: the file is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / FILE
    if not path.exists():
        return [[] for _ in columns]
    try:
        table = pq.read_table(path, columns=list(columns))
        return [table.column(name).to_pylist() for name in columns]
    except (pa.ArrowException, OSError, KeyError) as error:
        raise UsageError(f"{path} is damaged ({error}): train the cost model again") from error


def contest(challenger: OutOfFold, champion: Ensemble, memory: Remembered, records: Records) -> Contest:
    """Judges two cost models on the challenger's held-out measurements.

    Args:
        challenger: its out-of-fold predictions.
        champion: the cost model to beat.
        memory: the champion's own out-of-fold predictions.
        records: the challenger's history, for graphs and environments.
    """
    rows = challenger.routes
    backends = {key: records.environments[key].backend for key in set(rows.environment)}
    mine, theirs = set(backends.values()), champion.familiarity.backends
    shares, compared = [], 0
    for timed in rows.groups():
        group = timed[np.isfinite(rows.predicted[timed])]
        if not len(group) or backends[rows.environment[group[0]]] not in theirs:
            continue
        first = group[0]
        subject = rows.fingerprint[first], rows.environment[first]
        routes = [rows.routes[index] for index in group]
        judged = without_family(champion, memory.members, rows.family[first])
        said = _champion_says(judged, memory, records, subject, routes)
        actual = rows.log_ratio[group]
        pair = (
            metrics.pairwise_accuracy(actual, rows.predicted[group], _CLEAR),
            metrics.pairwise_accuracy(actual, said, _CLEAR),
        )
        if np.isfinite(pair).all():
            shares.append(pair)
            compared += len(group)
    challenging, reigning = np.mean(shares, axis=0) if shares else (np.nan, np.nan)
    return Contest(
        challenger=float(challenging),
        champion=float(reigning),
        models=len(shares),
        routes=compared,
        gained=tuple(sorted(mine - theirs)),
        lost=tuple(sorted(theirs - mine)) if mine else (),
    )


def without_family(champion: Ensemble, members: Mapping[str, int], family: str) -> Ensemble:
    """The part of a cost model that was trained without a family; ``members`` as in ``Remembered``."""
    member = members.get(family)
    return champion if member is None else replace(champion, members=[champion.members[member]])


def _champion_says(
    champion: Ensemble,
    memory: Remembered,
    records: Records,
    subject: tuple[str, str],
    routes: Sequence[Route],
) -> Array:
    """The champion's log ratios of R routes of one subject, a (fingerprint, environment); shape (R,)."""
    known = [memory.predicted.get((*subject, str(route))) for route in routes]
    if None not in known:
        return np.array(known, np.float64)
    view = champion.view(records.graphs[subject[0]], records.environments[subject[1]])
    now = view.predict(routes).log_ratio
    return np.array([fresh if stored is None else stored for stored, fresh in zip(known, now, strict=True)])
