"""The lines of a tuning cache: one route each, in the format that trtexec and Torch-TensorRT share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from routecast.datasets.build_routes import BuildRouteReader
from routecast.datasets.errors import UsageError
from routecast.datasets.importers.reading import Damaged, parse_json
from routecast.datasets.importers.session import (
    DAMAGED,
    NO_DEFAULT,
    NOT_A_NUMBER,
    UNREADABLE_ROUTE,
    LeftOut,
    Row,
    milliseconds,
    number,
    one_line,
)
from routecast.datasets.measurement import Status
from routecast.datasets.route import Route

METRICS = {"l0": "l0", "l1": "l1", "l2": "l2", "linf": "lInf", "cosine": "cos", "cos": "cos"}
"""routecast's metric by name of algorithm in lower case: both define them alike."""

_TOLERANCE = 1e-5
TOOL_FAILED = "the tuner itself failed there, which says nothing of the route"
CUT_OFF = "cut off by the time limit of the whole search, which says nothing of the route"
_TOOL = ("fork() failed", "waitpid() failed", "execvp() failed", "failed to start child process")
_LIMIT = "exceeded remaining tuning_timeout_s"
_NULL = "must be number, but is null"  # trtexec writes a loss that is not a number as null, and then cannot read it
_TIME = "non-finite gpu_time"
_NOT_FINITE = "a loss is not a number"


@dataclass
class Losses:
    """How losses are read.

    Attributes:
        metric: routecast's name, empty when they mean something else.
        note: why they are left out, empty when they are not.
    """

    metric: str
    note: str = ""

    @classmethod
    def of(cls, header: Mapping[str, Any], reference_pairs: int) -> Losses:
        """Reads a header."""
        name = str(header.get("accuracy_algorithm"))[:40]
        metric = METRICS.get(name.lower(), "")
        parameters = header.get("accuracy_parameter")
        parameters = parameters if isinstance(parameters, dict) else {}
        if not metric:
            return cls("", f"without its loss: accuracy algorithm {name!r} is not known")
        if reference_pairs > 1:
            return cls("", "without its loss: of several reference pairs only the last one's is recorded")
        tolerances = (parameters.get("atol", _TOLERANCE), parameters.get("rtol", _TOLERANCE))
        if metric == "l0" and not all(_is_usual(value) for value in tolerances):
            return cls("", "without its loss: its tolerances are not the usual 1e-5")
        return cls(metric)


def _is_usual(value: Any) -> bool:
    # trtexec keeps tolerances as 32-bit floats: 1e-5 is written as 9.999999747378752e-06.
    found = number(value)
    return found is not None and abs(found - _TOLERANCE) <= 1e-6 * _TOLERANCE


@dataclass
class CacheRows:
    """Reads the lines after a header.

    Attributes:
        reader: reads build routes, knowing the compiler's defaults.
        settings: knobs that all rows share.
        losses: how losses are read.
        restarts: whether ``iter`` begins again with each phase of a search.
    """

    reader: BuildRouteReader
    settings: Route
    losses: Losses
    restarts: bool
    skipped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    _rows: list[tuple[int, Row]] = field(default_factory=list)
    _phase: int = 0
    _last: int = -1

    def add(self, line: str) -> None:
        """Reads one line."""
        try:
            held = parse_json(line)
            if not isinstance(held, dict):
                raise LeftOut(DAMAGED)
            self._follow(held.get("iter"))
            self._rows.append((self._phase, self._row(held)))
        except Damaged:
            self.skipped[DAMAGED] += 1
        except LeftOut as reason:
            self.skipped[str(reason)] += 1

    def _follow(self, iteration: Any) -> None:
        if not isinstance(iteration, int) or isinstance(iteration, bool):
            return
        if self.restarts and iteration <= self._last:
            self._phase += 1
        self._last = iteration

    def _row(self, held: Mapping[str, Any]) -> Row:
        crashed, losses = held.get("crash"), held.get("accuracy_loss")
        if not isinstance(crashed, bool) or not isinstance(losses, dict | None):
            raise LeftOut(DAMAGED)
        route = self._route(held.get("build_route"))
        message = one_line(held.get("error_message") or "")
        _check_cause(message)
        if crashed:
            return Row(route, Status.INACCURATE if _NULL in message else Status.CRASHED, message=message or "crashed")
        status, accuracy, said = self._accuracy(losses, message)
        if status is Status.CRASHED:
            return Row(route, status, message=said)
        latency = milliseconds(held.get("gpu_time"))
        if latency is None and (status is Status.OK or held.get("gpu_time") is not None):
            raise LeftOut(NOT_A_NUMBER)
        return Row(route, status, latency, accuracy=accuracy, message=said)

    def _route(self, text: Any) -> Route:
        if not isinstance(text, str):
            raise LeftOut(DAMAGED)
        try:
            return Route({**self.settings, **self.reader.read(text)})
        except UsageError as error:
            raise LeftOut(UNREADABLE_ROUTE) from error

    def _accuracy(self, losses: Mapping[str, Any] | None, message: str) -> tuple[Status, dict[str, float], str]:
        if not losses:
            # Without losses nothing was checked, so a message is about something else than accuracy.
            return (Status.CRASHED if message else Status.OK), {}, message
        values = [number(value) for value in losses.values()]
        found = [value for value in values if value is not None]
        if len(found) < len(values):
            return Status.INACCURATE, {}, message or _NOT_FINITE
        status = Status.INACCURATE if message else Status.OK
        if not self.losses.metric:
            self.notes[self.losses.note] += 1
            return status, {}, message
        return status, {self.losses.metric: max(found)}, message

    def rows(self) -> tuple[Row, ...]:
        """What was read, each row with the time of the default route in its phase of the search."""
        phases = [(phase, row) for phase, row in self._rows if row.route.is_default and row.status is Status.OK]
        defaults = {phase: row.latency_ms for phase, row in reversed(phases)}
        first = phases[0][1].latency_ms if phases else None
        made = [replace(row, default_ms=defaults.get(phase, first)) for phase, row in self._rows]
        return with_notes(made, self.notes)


def _check_cause(message: str) -> None:
    """Leaves out what failed for a reason that is not the route's."""
    if _LIMIT in message:
        raise LeftOut(CUT_OFF)
    if any(words in message for words in _TOOL):
        raise LeftOut(TOOL_FAILED)
    if message.startswith(_TIME):
        raise LeftOut(NOT_A_NUMBER)


def with_notes(rows: Iterable[Row], notes: Counter[str]) -> tuple[Row, ...]:
    """Counts the rows that were timed and have no ratio."""
    rows = tuple(rows)
    without = sum(row.latency_ms is not None and row.default_ms is None for row in rows)
    if without:
        notes[NO_DEFAULT] += without
    return rows


_VARIABLE = re.compile(r"-([A-Za-z0-9_][A-Za-z0-9_:.+-]*)=\[[^\]]*\]", re.ASCII)


def variable_knobs(expression: str) -> frozenset[str]:
    """The knobs of a tuning expression that a search varies: ``-kgen:tiling=[0|1|2]``."""
    return frozenset(_VARIABLE.findall(expression))
