"""Which routes a saved cost model has learned from, so that new ones can be told from those.

A route counts once per model and environment: further measurements of it are repeats, and the default route is no
news. Routes are kept as 64 bits of a hash each, so that those of millions of measurements can be looked up in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from routecast.datasets.errors import UsageError
from routecast.datasets.measurement import Measurement
from routecast.training.promotion import read_out_of_fold

FILE = "learned_routes.npy"
"""Beside the weights in the folder of a saved cost model."""

Keys = npt.NDArray[np.uint64]
Measured = tuple[str, str, str]
"""Fingerprint, environment, and text form of the route."""


def save_learned(measured: Iterable[Measured], folder: Path) -> None:
    """Writes the routes that were learned from beside the weights; empty ones, default routes, are left out."""
    keys = np.fromiter((_key(item) for item in measured if item[2]), np.uint64)
    np.save(folder / FILE, np.unique(keys), allow_pickle=False)


def unlearned(measurements: Iterable[Measurement], folders: Iterable[Path]) -> list[Measurement]:
    """The measurements of routes that none of some saved cost models has learned from.

    Args:
        measurements: read once; only the new ones are kept.
        folders: of the cost models.

    Raises:
        UsageError: what a cost model remembers is damaged.
    """
    known = np.unique(np.concatenate([np.empty(0, np.uint64), *map(_learned, folders)]))
    return [item for item in measurements if item.route and not _holds(known, _key(_measured(item)))]


def distinct_routes(measurements: Iterable[Measurement]) -> int:
    """Number of routes, those of another model or environment counted apart."""
    return len(set(map(_measured, measurements)))


def _learned(folder: Path) -> Keys:
    """What a cost model has learned from; those saved before this was kept still have what they were evaluated on."""
    path = folder / FILE
    if not path.exists():
        columns = read_out_of_fold(folder, ("fingerprint", "environment", "route"))
        return np.fromiter(map(_key, zip(*columns, strict=True)), np.uint64)
    try:
        keys: npt.NDArray[Any] = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise UsageError(f"{path} is damaged ({error}): train the cost model again") from error
    if keys.dtype != np.uint64 or keys.ndim != 1:
        raise UsageError(f"{path} does not hold routes that were learned from: train the cost model again")
    return keys


def _holds(keys: Keys, key: int) -> bool:
    place = int(np.searchsorted(keys, np.uint64(key)))
    return place < len(keys) and int(keys[place]) == key


def _measured(measurement: Measurement) -> Measured:
    return measurement.fingerprint, measurement.environment, str(measurement.route)


def _key(measured: Measured) -> int:
    return int.from_bytes(hashlib.blake2b(" ".join(measured).encode(), digest_size=8).digest())
