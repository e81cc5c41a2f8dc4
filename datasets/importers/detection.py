"""Which format a file has, by what it holds."""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import islice
from pathlib import Path

from routecast.datasets.errors import UsageError
from routecast.datasets.importers.reading import Damaged, lines, parse_json

BANNER = re.compile(r"^&&&& (RUNNING|PASSED|FAILED|WAIVED) TensorRT\.trtexec\b(?: \[TensorRT v(\d+)\])?.*?# (.*)$")
"""What trtexec prints when it begins and when it ends: the event, the version and the command line."""

_SUMMARY = re.compile(r"\] GPU Compute Time: ")
_HEADER = {"tuning_expr", "default_build_route"}
_TRTEXEC_ONLY = {"argv", "command_line"}
_PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_FIRST = 20


class Format(StrEnum):
    """What can be imported."""

    TRTEXEC_CACHE = "trtexec-cache"
    TRTEXEC_TIMES = "trtexec-times"
    TRTEXEC_PROFILE = "trtexec-profile"
    TRTEXEC_LOG = "trtexec-log"
    TORCH_TENSORRT_CACHE = "torch-tensorrt-cache"


def refuse_pickles(content: bytes, path: Path) -> None:
    """Raises a usage error for what could run code when it is opened."""
    if content.startswith(_PICKLES):
        raise UsageError(
            f"{path} is a pickle or an archive, which is never opened: it could run any code; "
            "Torch-TensorRT's tuning cache (tuning_cache_file) is text, its engine cache holds no times"
        )


def detect(text: str, path: Path) -> Format | None:
    """The format of a file by its text, None when it is none of those that can be imported.

    Raises:
        UsageError: it is an export of trtexec without measurements; ``path`` names it.
    """
    first = next(lines(text), "")
    if first.startswith("{"):
        return _of_object(first, text, path)
    if first.startswith("[") and (found := _of_array(text)):
        return found
    if any(BANNER.match(line) or _SUMMARY.search(line) for line in lines(text)):
        return Format.TRTEXEC_LOG
    return None


def _of_object(first: str, text: str, path: Path) -> Format | None:
    if '"Layers"' in text[:200]:
        raise UsageError(f"{path} is a layer listing (--exportLayerInfo), which holds no times; import --exportProfile")
    # A cache whose first lines were lost still shows what it was.
    for line in islice(lines(text), _FIRST):
        try:
            held = parse_json(line)
        except Damaged:
            continue
        if not isinstance(held, dict):
            continue
        if held.keys() >= _HEADER:
            return Format.TRTEXEC_CACHE if _TRTEXEC_ONLY & held.keys() else Format.TORCH_TENSORRT_CACHE
        if held.keys() >= {"iter", "build_route"}:
            return Format.TRTEXEC_CACHE
    return None


def _of_array(text: str) -> Format | None:
    start = text[:4000]
    if re.search(r'"computeMs"\s*:', start):
        return Format.TRTEXEC_TIMES
    if re.search(r'\{\s*"count"\s*:\s*\d+\s*\}', start):
        return Format.TRTEXEC_PROFILE
    return None
