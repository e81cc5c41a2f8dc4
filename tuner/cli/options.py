"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from routecast.datasets.errors import UsageError


def without_password(source: str | None) -> str | None:
    """Refuses a URL with a password on the command line, where every user of the machine can read it.

    Raises:
        UsageError: the URL holds a password.
    """
    if source is not None and "://" in source:
        from routecast.datasets.places import holds_password

        if holds_password(source):
            raise UsageError(
                "a password on the command line can be read by every user of this machine: leave it out of the URL, "
                "and put it into ~/.pgpass or PGPASSWORD, or the whole URL into $ROUTECAST_HISTORY"
            )
    return source


def history(panel: str | None = None) -> Any:
    """The option that names a history, in a panel of the help."""
    return typer.Option(
        metavar="URL",
        help="History: an SQLite file, or the URL of a PostgreSQL database, without password.",
        callback=without_password,
        show_default="$ROUTECAST_HISTORY, or ~/.local/share/routecast/history.db",
        rich_help_panel=panel,
    )


HistoryOption = Annotated[str | None, history()]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)]
ShapesOption = Annotated[
    list[str] | None,
    typer.Option("--shapes", metavar="NAME:1x3x224x224", help="Shape of an input with dynamic axes; may be repeated."),
]
FamilyOption = Annotated[str, typer.Option(help="Architecture family, such as resnet or bert.")]
BackendOption = Annotated[str, typer.Option(help="What builds and runs the model.")]
CostModelOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Cost model.", show_default="the registry's champion, or the shipped one"),
]
MembersOption = Annotated[int | None, typer.Option(min=1, help="Networks in the ensemble.", show_default="5")]
EpochsOption = Annotated[int | None, typer.Option(min=1, help="Passes over the history.", show_default="150")]
AnyVersionOption = Annotated[
    bool, typer.Option("--any-version", help="Use the cost model even for a backend's version that it never saw.")
]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Measure on the workers of a Ray cluster (HOST:PORT, auto or ray://HOST:PORT) instead of this machine.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
SeedOption = Annotated[int, typer.Option(help="Seed of everything random.")]
NumericsOption = Annotated[
    bool,
    typer.Option("--numerics/--no-numerics", help="Allow knobs that may change results, within the accuracy limit."),
]


def parse_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """Reads ``name:1x3x224x224``; several may be joined by commas, and a name may hold colons.

    Raises:
        UsageError: a text is malformed or names an input twice.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for item in (item for text in texts or () for item in text.split(",")):
        name, colon, sizes = item.strip().rpartition(":")
        parts = sizes.split("x") if sizes else []
        if not (colon and name) or not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
            raise UsageError(f"--shapes takes NAME:SIZExSIZE..., such as x:1x3x224x224, got {item!r}")
        if name in shapes:
            raise UsageError(f"--shapes gives input {name} twice")
        shapes[name] = tuple(map(int, parts))
    return shapes


def parse_ranges(texts: Sequence[str] | None) -> dict[str, tuple[float, float]]:
    """Reads ``name:low:high``; a name may hold colons.

    Raises:
        UsageError: a text is malformed, its bounds are not in order, or it names an input twice.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for text in texts or ():
        name, low, high = _range(text)
        if name in ranges:
            raise UsageError(f"--range gives input {name} twice")
        ranges[name] = (low, high)
    return ranges


def _range(text: str) -> tuple[str, float, float]:
    try:
        name, low, high = text.rsplit(":", 2)
        bounds = float(low), float(high)
    except ValueError:
        raise UsageError(f"--range takes NAME:LOW:HIGH, such as x:0:1, got {text!r}") from None
    if not name or not all(map(math.isfinite, bounds)) or not bounds[0] < bounds[1]:
        raise UsageError(f"--range needs a name and finite numbers, LOW below HIGH, got {text!r}")
    return name, *bounds
