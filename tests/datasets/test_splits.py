"""Tests of splits by family."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routecast.datasets.errors import UsageError
from routecast.datasets.splits import family_folds, held_out_families

several = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=60)


@given(several, st.integers(2, 6), st.integers(0, 5))
def test_folds_partition_the_families(families: list[str], folds: int, seed: int) -> None:
    dealt = family_folds(families, folds, seed)
    assert len(dealt) == min(folds, len(set(families)))
    assert sorted(family for fold in dealt for family in fold) == sorted(set(families))
    assert all(dealt)
    assert dealt == family_folds(list(reversed(families)), folds, seed)


@given(several, st.integers(2, 6))
def test_folds_are_balanced_by_measurements(families: list[str], folds: int) -> None:
    sizes = Counter(families)
    loads = [sum(sizes[family] for family in fold) for fold in family_folds(families, folds)]
    assert max(loads) - min(loads) <= max(sizes.values())


def test_the_seed_matters() -> None:
    assert len({tuple(family_folds("abcdefgh", 3, seed)) for seed in range(8)}) > 1


def test_folds_need_measurements_and_two_folds() -> None:
    with pytest.raises(UsageError, match="got none"):
        family_folds([], 3)
    with pytest.raises(UsageError, match="at least 2 folds, got 1"):
        family_folds(["a", "b"], 1)


@given(several.filter(lambda families: len(set(families)) > 1), st.floats(0.05, 0.9), st.integers(0, 3))
def test_holding_out_leaves_something_on_both_sides(families: list[str], share: float, seed: int) -> None:
    held = held_out_families(families, share, seed)
    assert held
    assert held < set(families)
    sizes = Counter(families)
    assert sum(sizes[family] for family in held) <= max(share * len(families), min(sizes.values()))


def test_holding_out_refuses_what_cannot_be() -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        held_out_families(["a", "b"], 1.0)
    with pytest.raises(UsageError, match="at least 2"):
        held_out_families(["a", "a"], 0.5)
