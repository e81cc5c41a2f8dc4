"""What every importer reads a file into: sessions of rows that share a model and an environment."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from routecast.datasets.environment import Environment
from routecast.datasets.measurement import LocalTime, Status
from routecast.datasets.route import Route

NO_ROUTE = "no route is recorded: say what was measured with --route (default for the default route)"
NOT_A_NUMBER = "its time is not a number above zero"
UNREADABLE_ROUTE = "its build route cannot be read"
DAMAGED = "a truncated or damaged line"
UNSTABLE = "timing did not settle: coefficient of variation above 2.5 %"
NO_DEFAULT = "without a ratio: the default route was not timed in the same session"

STEADY = 0.025
"""Greatest coefficient of variation of a settled timing: the limit above which trtexec itself warns."""


class LeftOut(Exception):
    """Why something is not imported."""


Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Row:
    """One route measured once, as a file says it. Times are in ms unless the name says seconds."""

    route: Route
    status: Status
    latency_ms: float | None = None
    default_ms: float | None = None
    accuracy: Mapping[str, float] = field(default_factory=dict)
    message: str = ""
    build_seconds: float | None = None
    load_seconds: float | None = None
    local_profile: tuple[LocalTime, ...] = ()


@dataclass(frozen=True)
class Session:
    """Rows of one model in one environment, and what was left out.

    Attributes:
        environment: as far as the file tells; a session without a device cannot be imported unless the user names one.
        rows: what can be imported once model and environment are known.
        onnx: path of the model as the file records it, empty when it does not.
        shapes: input shapes by name, as far as the file records them.
        skipped: number of measurements that cannot be imported, by reason.
        notes: number of rows that something was left out of, by what it was.
        outputs: names of the other files that this session wrote.
        refused: why none of the rows can be imported, empty when they can.
    """

    environment: Environment
    rows: tuple[Row, ...] = ()
    onnx: str = ""
    shapes: Shapes = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    outputs: frozenset[str] = frozenset()
    refused: str = ""


def number(value: Any) -> float | None:
    """A JSON number as a float, None when it is something else or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def milliseconds(value: Any) -> float | None:
    """A JSON number as a time, None when it is no finite number above zero."""
    found = number(value)
    return found if found is not None and found > 0 else None


def one_line(text: object, limit: int = 300) -> str:
    """A message on one line of printable characters, cut where it gets long."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)).split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
