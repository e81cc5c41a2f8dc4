"""What trtexec exports as JSON: times of all inferences (``--exportTimes``) and of layers (``--exportProfile``).

Neither file says what it is about. The log of the same run does, when it is imported with them; otherwise the user.
"""

from __future__ import annotations

import re
from collections import Counter
from statistics import fmean, median, pstdev
from typing import Any

from routecast.datasets.environment import Environment
from routecast.datasets.importers.reading import Damaged, parse_json
from routecast.datasets.importers.request import ImportRequest
from routecast.datasets.importers.session import (
    NO_ROUTE,
    NOT_A_NUMBER,
    STEADY,
    UNSTABLE,
    Row,
    Session,
    milliseconds,
    number,
    one_line,
)
from routecast.datasets.importers.trtexec import BACKEND
from routecast.datasets.measurement import LocalTime, Status

DAMAGED_FILE = "the file is truncated or damaged"
NO_TIMES = "it holds no inference"
PROFILE_ALONE = "a profile has no end-to-end time: import it together with the log of its run"

_KERNEL = re.compile(r"^__my[a-z]*_([A-Za-z]+)_")


def read_times(text: str, request: ImportRequest) -> list[Session]:
    """Reads ``--exportTimes``: one measurement, the median of the GPU's time over all inferences.

    Older and newer names of the other times do not matter: the GPU's is ``computeMs`` in all of them.
    """
    place = Environment(BACKEND, "", "")
    found = _records(text)
    reason, times = _computed(found)
    if not reason and request.route is None:
        reason = NO_ROUTE
    if reason or request.route is None:
        return [Session(place, skipped=Counter({reason: 1}))]
    row = Row(request.route, Status.OK, median(times), median(times) if request.route.is_default else None)
    return [Session(place, (row,))]


def _records(text: str) -> list[Any] | None:
    try:
        found = parse_json(text)
    except Damaged:
        return None
    return found if isinstance(found, list) else None


def _computed(found: list[Any] | None) -> tuple[str, list[float]]:
    if found is None:
        return DAMAGED_FILE, []
    times = [milliseconds(item.get("computeMs")) if isinstance(item, dict) else None for item in found]
    known = [time for time in times if time is not None]
    if len(known) < len(times):
        return NOT_A_NUMBER, []
    if not known:
        return NO_TIMES, []
    if pstdev(known) > STEADY * fmean(known):
        return UNSTABLE, []
    return "", known


def read_profile(text: str) -> tuple[LocalTime, ...] | None:
    """Reads ``--exportProfile``: the median time of each layer, the mean where the release wrote no median.

    None when the file is damaged or a time is not a number.
    """
    found = _records(text)
    if found is None:
        return None
    layers = [item for item in found if isinstance(item, dict) and "name" in item]
    times = [number(layer.get("medianMs", layer.get("averageMs"))) for layer in layers]
    if not layers or any(time is None or time < 0 for time in times):
        return None
    return tuple(
        LocalTime(one_line(layer["name"]), _kind(str(layer["name"])), time)
        for layer, time in zip(layers, times, strict=True)
        if time is not None
    )


def _kind(name: str) -> str:
    kernel = _KERNEL.match(name)
    return kernel.group(1) if kernel else "layer"
