"""trtexec's tuning cache, and a tuning expression for it, from a history.

The cache has the header and the lines of trtexec 11.1 (``datasets/importers/trtexec.py`` reads the same). Its first
lines are the routes of a fast search over the expression in its header, in that search's order, so that ``--continue``
finds nothing left to do; routes that change several knobs follow as the second phase of a mixed search.
"""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from routecast.datasets.build_routes import GROUP
from routecast.datasets.errors import UsageError
from routecast.datasets.measurement import Measurement, Purpose, Status
from routecast.datasets.records import Records
from routecast.datasets.route import Route

OTHER_KNOBS = "their route changes more than a build route can say (precision, graph form, builder or runtime options)"
UNTIMED = "no time was measured"
REPEATED = "another measurement of the same route stands for them"

_ALGORITHMS = {"l0": "L0", "l1": "L1", "l2": "L2", "lInf": "LInf", "cos": "Cosine"}
_TRUST = {Purpose.CONFIRM: 2, Purpose.EXPLORE: 1, Purpose.CONTROL: 0}


@dataclass(frozen=True)
class TrtexecCache:
    """A tuning cache.

    Attributes:
        text: JSON lines.
        routes: how many it holds.
        left_out: number of measurements that it cannot hold, by reason.
    """

    text: str
    routes: int
    left_out: Mapping[str, int] = field(default_factory=dict)


def trtexec_cache(records: Records, defaults: Mapping[str, str]) -> TrtexecCache:
    """Writes the measurements of one model in one environment as a tuning cache.

    A line holds one route: its confirming measurement, or else its last one. ``gpu_time`` is the measured latency.
    trtexec knows one kind of failure, so every one becomes a crash with the message of what happened.

    Args:
        records: see ``select``.
        defaults: the compiler's default by name of knob, without the leading dash, of the tuner's version.

    Raises:
        UsageError: nothing can be written: no route of compiler knobs, or no time of the default route.
    """
    chosen, left_out = _choose(records.measurements)
    singles, others = _ordered(chosen, defaults)
    values = _values((route for route in singles), defaults)
    # Knobs that were only changed together with others do not vary in the first phase.
    for name in (name for route in others for name in route):
        values.setdefault(_bare(name, defaults), [])
    metric = _metric(chosen.values())
    phases = [[chosen.get(Route()) or _default(records.measurements)], []]
    phases[0] += [chosen[route] for route in singles]
    phases[1] += [chosen[route] for route in others]
    lines: list[dict[str, Any]] = [_header(records, defaults, values, metric, mixed=bool(others))]
    for phase in phases:
        for number, measurement in enumerate(phase):
            lines.append(_line(number, measurement, _text(measurement.route, values, defaults), metric))
    text = "".join(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n" for line in lines)
    return TrtexecCache(text, len(lines) - 1, dict(left_out))


def trtexec_expression(records: Records, defaults: Mapping[str, str]) -> str:
    """A ``--tuneBuildRouteFile``: the compiler knobs of routes that were faster than the default, with the values.

    Args:
        records: see ``select``.
        defaults: as ``trtexec_cache``.

    Raises:
        UsageError: no route with compiler knobs was faster.
    """
    timed = [(item.ratio, item) for item in records.measurements if item.ok and item.ratio is not None]
    faster = sorted(((ratio, item) for ratio, item in timed if ratio < 1), key=lambda pair: pair[0])
    expression = route_expression([item.route for _, item in faster], defaults)
    if not expression:
        raise UsageError("no route with compiler knobs was faster than the default: there is nothing to try")
    return expression


def route_expression(routes: Iterable[Route], defaults: Mapping[str, str], pinned: Route = Route()) -> str:  # noqa: B008
    """A ``--tuneBuildRouteFile`` of ranked routes; empty when none has compiler knobs beside the pinned ones.

    trtexec reads such a file as one expression, not as a list of routes, and tries its last knob first: the knob of
    the best route comes last.

    Args:
        routes: the best first; only their compiler knobs are taken.
        defaults: as ``trtexec_cache``.
        pinned: its compiler knobs keep their values in every route that trtexec tries.

    Raises:
        UsageError: the default of a knob is not known.
    """
    fixed = {name.removeprefix(GROUP): value for name, value in pinned.items() if name.startswith(GROUP)}
    compiler = [Route((name, value) for name, value in route.items() if name.startswith(GROUP)) for route in routes]
    values = {name: found for name, found in _values(compiler, defaults).items() if name not in fixed and found}
    if not values:
        return ""
    lines = [f"-{name}={_bracketed([defaults[name], *alternatives])}" for name, alternatives in values.items()]
    return "".join(f"{line}\n" for line in (*(f"-{name}={value}" for name, value in fixed.items()), *reversed(lines)))


def _choose(measurements: Sequence[Measurement]) -> tuple[dict[Route, Measurement], Counter[str]]:
    """The measurement that stands for each route."""
    chosen: dict[Route, Measurement] = {}
    left_out: Counter[str] = Counter()
    for measurement in measurements:
        if not all(name.startswith(GROUP) for name in measurement.route):
            left_out[OTHER_KNOBS] += 1
        elif measurement.ok and measurement.latency_ms is None:
            left_out[UNTIMED] += 1
        else:
            held = chosen.get(measurement.route)
            left_out[REPEATED] += held is not None
            if held is None or _TRUST[measurement.purpose] >= _TRUST[held.purpose]:
                chosen[measurement.route] = measurement
    if not any(chosen):
        raise UsageError("no measurement has a route of compiler knobs, which is all that a tuning cache can hold")
    return chosen, +left_out


def _default(measurements: Sequence[Measurement]) -> Measurement:
    """The default route, from the times that others were compared with."""
    times = [item.default_ms for item in measurements if item.default_ms is not None]
    if not times:
        raise UsageError("the default route was never timed, and a tuning cache begins with it")
    first = measurements[0]
    return Measurement(first.fingerprint, Route(), first.environment, Status.OK, first.model, latency_ms=median(times))


def _ordered(chosen: Iterable[Route], defaults: Mapping[str, str]) -> tuple[list[Route], list[Route]]:
    """Routes of one knob in the order of a fast search, from the last knob to the first, and the others."""
    singles = sorted((route for route in chosen if len(route) == 1), key=lambda route: next(iter(route)), reverse=True)
    for route in singles:
        _bare(next(iter(route)), defaults)
    return singles, [route for route in chosen if len(route) > 1]


def _bare(name: str, defaults: Mapping[str, str]) -> str:
    bare = name.removeprefix(GROUP)
    if bare not in defaults:
        raise UsageError(f"the default of the compiler's knob {bare} is not known, and a tuning cache must hold it")
    return bare


def _values(routes: Iterable[Route], defaults: Mapping[str, str]) -> dict[str, list[str]]:
    """The values other than the default of each knob, in the order of the routes."""
    found: dict[str, list[str]] = {}
    for route in routes:
        for name, value in route.items():
            values = found.setdefault(_bare(name, defaults), [])
            if value not in values and value != defaults[name.removeprefix(GROUP)]:
                values.append(value)
    return found


def _bracketed(values: Sequence[str]) -> str:
    return f"[{'|'.join(values)}]"


def _metric(measurements: Iterable[Measurement]) -> str:
    """The metric of accuracy that most measurements have."""
    counted = Counter(name for item in measurements for name in item.accuracy if name in _ALGORITHMS)
    return max(counted, key=lambda name: (counted[name], name), default="l0")


def _header(
    records: Records, defaults: Mapping[str, str], values: Mapping[str, Sequence[str]], metric: str, *, mixed: bool
) -> dict[str, Any]:
    first = records.measurements[0]
    environment = records.environments.get(first.environment)
    onnx = f"{first.model or first.fingerprint}.onnx"
    expression = " ".join(
        f"-{name}={_bracketed([defaults[name], *values[name]]) if values[name] else defaults[name]}"
        for name in sorted(values)
    )
    search = "mixed" if mixed else "fast"
    argv = ["trtexec", f"--onnx={onnx}", f"--tuneBuildRoutes={expression}", f"--tuningSearch={search}"]
    return {
        "tuner_version": environment.tuner_version if environment else "",
        "accuracy_algorithm": _ALGORITHMS[metric],
        "accuracy_parameter": {"atol": 1e-5, "rtol": 1e-5, "epsilon": 0.0},
        "searching_algorithm": search,
        "command_line": shlex.join(argv),
        "default_build_route": " ".join(f"-{name}={value}" for name, value in defaults.items()),
        "tuning_expr": expression,
        "files": {"onnx": onnx},
        "argv": argv,
    }


def _text(route: Route, values: Mapping[str, Sequence[str]], defaults: Mapping[str, str]) -> str:
    """A route as trtexec writes it: every knob of the expression, in its order."""
    return " ".join(f"-{name}={route.get(GROUP + name, defaults[name])}" for name in sorted(values))


def _line(number: int, measurement: Measurement, build_route: str, metric: str) -> dict[str, Any]:
    crashed = measurement.status not in (Status.OK, Status.INACCURATE)
    inaccurate = measurement.status is Status.INACCURATE
    loss = measurement.accuracy.get(metric)
    loss = loss if loss is not None and math.isfinite(loss) else None
    known = loss is not None or inaccurate
    said = measurement.message or str(measurement.status).replace("_", " ")
    return {
        "iter": number,
        "build_route": build_route,
        "crash": crashed,
        "error_message": said if crashed or inaccurate else "",
        "accuracy_loss": {"worst output": loss} if known and not crashed else None,
        "gpu_time": None if crashed else measurement.latency_ms,
    }
