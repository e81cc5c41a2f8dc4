"""Splits by architecture family, since measurements of one model and its relatives are not independent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from routecast.datasets.errors import UsageError


def family_folds(families: Sequence[str] | Mapping[str, int], folds: int, seed: int = 0) -> list[frozenset[str]]:
    """Deals families into folds that hold about as many measurements each.

    The largest family goes first, always into the fold with the fewest measurements; families and folds of
    equal size are taken in random order.

    Args:
        families: the family of each measurement, or the number of measurements of each family.
        folds: how many folds; there are fewer when there are fewer families.
        seed: of the random order.

    Returns:
        The families of each fold; every family is in exactly one.

    Raises:
        UsageError: there are no measurements, or fewer than 2 folds are asked for.
    """
    if folds < 2:
        raise UsageError(f"a split by family needs at least 2 folds, got {folds}")
    if not families:
        raise UsageError("a split by family needs measurements, got none: collect or tune first")
    sizes = _shuffled_sizes(families, seed)
    dealt: list[set[str]] = [set() for _ in range(min(folds, len(sizes)))]
    loads = [0] * len(dealt)
    for family, size in sorted(sizes.items(), key=lambda item: -item[1]):
        smallest = loads.index(min(loads))
        dealt[smallest].add(family)
        loads[smallest] += size
    return [frozenset(fold) for fold in dealt]


def held_out_families(families: Sequence[str], share: float, seed: int = 0) -> frozenset[str]:
    """Draws families that together hold about a share of the measurements, to evaluate on.

    Families are taken in random order, each unless it would take more than the share; at least one is held
    out and at least one is left.

    Args:
        families: the family of each measurement.
        share: the share to hold out, between 0 and 1.
        seed: of the random order.

    Raises:
        UsageError: the share is not between 0 and 1, or there are fewer than 2 families.
    """
    if not 0 < share < 1:
        raise UsageError(f"the share to hold out must lie between 0 and 1, got {share}")
    sizes = _shuffled_sizes(families, seed)
    if len(sizes) < 2:
        raise UsageError(f"holding families out needs at least 2 of them, got {len(sizes)}: collect more networks")
    limit, held, total = share * len(families), set(), 0
    for family, size in sizes.items():
        if total + size <= limit:
            held.add(family)
            total += size
    return frozenset(held or {min(sizes, key=lambda family: sizes[family])})


def _shuffled_sizes(families: Sequence[str] | Mapping[str, int], seed: int) -> dict[str, int]:
    sizes = Counter(families)
    names = sorted(sizes)
    order = np.random.default_rng(seed).permutation(len(names))
    return {names[index]: sizes[names[index]] for index in order}
