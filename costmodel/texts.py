"""Turns names into hash buckets, so that a name never seen before still means what its parts mean."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

BUCKETS = 2048
"""Rows of the embedding table that all texts share; row 0 is padding."""

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


def words(name: str) -> list[str]:
    """The words of a name, lower case: ``graph.ConvMulFusion:v2`` gives graph, conv, mul, fusion, v, 2."""
    return [word.lower() for word in _WORD.findall(name)]


@lru_cache(maxsize=65536)
def buckets(text: str) -> tuple[int, int]:
    """Two independent buckets of a text in [1, BUCKETS).

    Two texts that meet in one bucket seldom meet in both (Svenstrup et al., "Hash embeddings", 2017).
    """
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    first, second = int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")
    return 1 + first % (BUCKETS - 1), 1 + second % (BUCKETS - 1)


def encode(wholes: Iterable[str], parts: Iterable[str], width: int) -> npt.NDArray[np.int64]:
    """Encodes texts as a bag of buckets.

    Args:
        wholes: texts that identify something; each takes both of its buckets.
        parts: texts that describe it; each takes one bucket. Those that do not fit are dropped.
        width: length of the result.

    Returns:
        Buckets padded with 0, shape (width,).
    """
    found = [bucket for text in wholes for bucket in buckets(text)]
    found += [buckets(text)[0] for text in dict.fromkeys(parts)]
    bag = np.zeros(width, np.int64)
    bag[: len(found)] = found[:width]
    return bag
