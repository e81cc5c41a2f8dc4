"""How commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_PIPE_WIDTH = 120
_NARROWEST_TEXT = 14


def console(*, err: bool = False) -> Console:
    """A console on stdout or stderr, wide enough for tables when it is not a terminal."""
    from rich.console import Console

    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return Console(stderr=err, width=width, highlight=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", text: Sequence[str] = ()) -> Table:
    """A table; columns named in ``text`` are left-aligned and wrap, the others hold numbers.

    Cells are plain text: square brackets in them are no markup.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False, collapse_padding=True)
    for column in columns:
        wraps = column in text
        width = _NARROWEST_TEXT if wraps else None
        made.add_column(
            column, justify="left" if wraps else "right", no_wrap=not wraps, overflow="fold", min_width=width
        )
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def print_json(data: Any) -> None:
    """Prints data as JSON on stdout; NaN and infinities, which JSON has not, become null."""
    typer.echo(json.dumps(_finite(data), indent=2, default=str, allow_nan=False))


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data
