from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from routecast.costmodel.texts import BUCKETS, buckets, encode, words


def test_words_splits_all_kinds_of_names() -> None:
    assert words("graph.ConvMulFusion:v2") == ["graph", "conv", "mul", "fusion", "v", "2"]
    assert words("-kgen:fuse_reduction") == ["kgen", "fuse", "reduction"]
    assert words("com.microsoft::QAttention") == ["com", "microsoft", "q", "attention"]
    assert words("LSTM") == ["lstm"]


@given(st.text())
def test_buckets_never_hit_the_padding(text: str) -> None:
    assert all(0 < bucket < BUCKETS for bucket in buckets(text))


def test_buckets_do_not_change_between_versions() -> None:
    assert buckets("op:Conv") == (1909, 1842)


@given(st.lists(st.text(max_size=5), max_size=5), st.lists(st.text(max_size=5), max_size=9))
def test_encode_fills_from_the_front(wholes: list[str], parts: list[str]) -> None:
    bag = encode(wholes, parts, 12)
    used = min(12, 2 * len(wholes) + len(set(parts)))
    assert bag.shape == (12,)
    assert np.all(bag[:used] > 0)
    assert np.all(bag[used:] == 0)
