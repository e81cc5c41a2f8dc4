"""Reading files that others wrote: within a size limit, without running anything that they hold."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from routecast.datasets.errors import UsageError

LIMIT = 256 * 2**20
"""Largest file that is read, in bytes: a million lines of a tuning cache, or of a log."""


class Damaged(ValueError):
    """A text is not the JSON that it should be."""


def read_content(path: Path) -> bytes:
    """Reads a file.

    Raises:
        UsageError: there is no such file, it cannot be read, or it is too large.
    """
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise UsageError(f"{path} is not a regular file; give the path of a cache, an export or a log")
        if facts.st_size > LIMIT:
            raise UsageError(
                f"{path} has {facts.st_size / 2**20:,.0f} MiB and files of up to {LIMIT // 2**20} MiB are imported; "
                "split it by lines, keeping the first line of a tuning cache in each part"
            )
        return path.read_bytes()
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def decode(content: bytes) -> str:
    """A file's content as text; bytes that are no UTF-8 are replaced."""
    return content.decode("utf-8", errors="replace").removeprefix("\ufeff")


def parse_json(text: str) -> Any:
    """Reads JSON.

    Raises:
        Damaged: it is none, or nested too deeply.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Damaged(str(error)) from error


def lines(text: str) -> Iterator[str]:
    """The lines that hold anything, ended by line feeds alone as programs write them."""
    for line in text.split("\n"):
        if stripped := line.strip():
            yield stripped
