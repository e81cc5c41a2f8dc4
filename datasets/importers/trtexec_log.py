"""trtexec's text log: one measurement for each run in it, those that the tuner starts among them.

A log tells more than a cache: the device, the version, the shapes and the median time without warm-up runs. It does not
tell the compiler's defaults; in a log of the tuner the first route of a fast or mixed search is the default one.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from routecast.datasets.build_routes import parse_build_route, parse_settings
from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.importers.command_line import Command, of_banner, parse_version, read_command
from routecast.datasets.importers.detection import BANNER
from routecast.datasets.importers.reading import lines
from routecast.datasets.importers.rows import variable_knobs, with_notes
from routecast.datasets.importers.session import (
    NOT_A_NUMBER,
    UNREADABLE_ROUTE,
    UNSTABLE,
    LeftOut,
    Row,
    Session,
    Shapes,
    milliseconds,
    one_line,
)
from routecast.datasets.importers.trtexec import BACKEND
from routecast.datasets.measurement import Status
from routecast.datasets.route import Route

NO_END = "the log ends within the run"
NOTHING_TIMED = "the run timed nothing"
NOT_STARTED = "the run failed before it built anything, which says nothing of the route"
NO_BANNER = "the log does not hold the run's command line"

_LINE = re.compile(r"^(?:\[[\d/:.-]+\] )?\[([IWEV])\] (.*)$")
_ABORT = re.compile(r"^&&&& TASK_ABORT ")
_FAILED = re.compile(r"Iteration \[\d+\] failed: (.*)$")
_SUMMARY = re.compile(r"^GPU Compute Time: .*?\bmedian = (\S+) ms")
_SECONDS = re.compile(r"^Engine (built|deserialized|loaded) in (\S+) sec")
_SHAPE = re.compile(r"^Input binding for (.+) with dimensions (\d+(?:x\d+)*)(?: and type .*)? is created\.")
_VERSION = re.compile(r"^TensorRT version: (\d+\.\d+\.\d+)")
_UNSTABLE = "GPU compute time is unstable"
_NO_GRAPH = "launched without using CUDA graph"
_INACCURATE = "Accuracy validation FAILED"
_FACTS: Mapping[str, tuple[str, float]] = {
    # what a line of the log is called: (name among an environment's numbers, factor to its unit)
    "Compute Capability": ("compute_capability", 1.0),
    "SMs": ("streaming_multiprocessors", 1.0),
    "Device Global Memory": ("memory_gb", 1 / 1024),
    "Memory Bus Width": ("bus_bits", 1.0),
    "Application Compute Clock Rate": ("clock_mhz", 1000.0),
    "Application Memory Clock Rate": ("memory_clock_mhz", 1000.0),
}


@dataclass
class Run:
    """What the log says of one run, as it is read."""

    command: Command | None
    build_route: str = ""
    version: str = ""
    device: str = ""
    uuid: str = ""
    numbers: dict[str, float] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    median: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    parsed: bool = False
    started: bool = False
    unstable: bool = False
    without_graph: bool = False
    inaccurate: bool = False
    error: str = ""
    end: str = ""

    @property
    def environment(self) -> Environment:
        """Where it ran, as far as the log says."""
        numbers = {name: round(value, 3) for name, value in self.numbers.items() if name != "bus_bits"}
        if "bus_bits" in self.numbers and "memory_clock_mhz" in numbers:
            bandwidth = self.numbers["memory_clock_mhz"] * 1e6 * 2 * self.numbers["bus_bits"] / 8 / 1e9
            numbers["bandwidth_gbs"] = round(bandwidth, 3)  # double data rate
        host = hashlib.sha256(f"routecast:{self.uuid}".encode()).hexdigest()[:12] if self.uuid else ""
        return Environment(BACKEND, self.version, self.device, host=host, numbers=numbers)


def read_log(text: str, covered: Iterable[str] = ()) -> list[Session]:
    """Reads a log.

    Args:
        text: the log.
        covered: names of tuning caches that are imported too: the routes of their tuners are left out here.
    """
    found, known = [], frozenset(covered)
    for tuner, runs in _groups(_runs(text)):
        found.append(_session(tuner, runs, known))
    return found


def _runs(text: str) -> Iterator[Run]:
    """The runs of a log; the tuner's own comes when it ends or the log does, after the runs it started."""
    stack: list[Run] = []
    loose = Run(None)
    for line in lines(text):
        banner = BANNER.match(line)
        if banner is None:
            _read_line(stack[-1] if stack else loose, line)
            if stack and not _tunes(stack[-1]) and _ABORT.match(line):
                stack[-1].end = "ABORTED"
                yield stack.pop()
            continue
        event, version, command = banner.groups()
        if event == "RUNNING":
            if stack and not _tunes(stack[-1]):
                yield stack.pop()
            stack.append(_begin(version or "", command))
        elif stack:
            stack[-1].end = event
            yield stack.pop()
    yield from reversed(stack)
    if loose.median:
        yield loose


def _tunes(run: Run) -> bool:
    return run.command is not None and run.command.tunes


def _begin(version: str, command: str) -> Run:
    numbers = parse_version(version)
    read = read_command(of_banner(command), numbers)
    text = ".".join(map(str, numbers)) if numbers else ""
    return Run(read, read.options.get("setBuildRoute", ""), text)


def _read_line(run: Run, line: str) -> None:
    match = _LINE.match(line)
    if match is None:
        return
    level, said = match.groups()
    if level == "E" and not run.error:
        run.error = one_line(said)
    if failed := _FAILED.search(said):
        run.error = one_line(failed.group(1))
    run.parsed |= said.startswith("Finished parsing network model")
    run.started |= said.startswith("Starting inference")
    run.unstable |= _UNSTABLE in said
    run.without_graph |= _NO_GRAPH in said
    run.inaccurate |= _INACCURATE in said
    _read_facts(run, said)


def _read_facts(run: Run, said: str) -> None:
    if found := _SUMMARY.match(said):
        run.median = found.group(1)
    elif found := _SECONDS.match(said):
        if (seconds := _float(found.group(2))) is not None:
            run.seconds[found.group(1)] = seconds
    elif found := _SHAPE.match(said):
        if len(found.group(2)) <= 200:
            run.shapes[found.group(1)] = tuple(map(int, found.group(2).split("x")))
    elif found := _VERSION.match(said):
        run.version = found.group(1)
    else:
        name, _, value = said.partition(": ")
        if name == "Selected Device":
            run.device = one_line(value, 80)
        elif name == "Selected Device UUID":
            run.uuid = value.strip()
        elif name in _FACTS and (amount := _float(value.split(" ")[0])) is not None:
            key, factor = _FACTS[name]
            run.numbers[key] = amount * factor


def _float(text: str) -> float | None:
    try:
        return milliseconds(float(text))
    except ValueError:
        return None


def _groups(runs: Iterable[Run]) -> Iterator[tuple[Run | None, list[Run]]]:
    """Each tuner with the runs it started, and every other run alone."""
    waiting: list[Run] = []
    for run in runs:
        if _tunes(run):
            yield run, waiting
            waiting = []
        elif run.command is not None and "tuningResultFile" in run.command.options:
            waiting.append(run)
        else:
            yield None, [run]
    if waiting:
        yield None, waiting


def _session(tuner: Run | None, runs: list[Run], covered: frozenset[str]) -> Session:
    first = runs[0] if runs else tuner
    assert first is not None
    commands = [run.command for run in (tuner, *runs) if run is not None and run.command is not None]
    made = Session(
        first.environment,
        onnx=next((command.onnx for command in commands if command.onnx), ""),
        shapes=_shapes(first),
        outputs=frozenset(name for command in commands for name in command.outputs),
        refused=next((command.refused for command in commands if command.refused), ""),
    )
    caches = covered & made.outputs
    if tuner is not None and caches:
        return replace(made, skipped=Counter({f"the tuning cache {min(caches)} holds it too": len(runs)}))
    defaults = _defaults(tuner, runs)
    rows: list[Row] = []
    for run in runs:
        try:
            rows.append(_row(run, defaults))
        except LeftOut as reason:
            made.skipped[str(reason)] += 1
    if tuner is not None:
        times = [row.latency_ms for row in rows if row.route.is_default and row.status is Status.OK]
        rows = [replace(row, default_ms=times[0] if times else None) for row in rows]
    return replace(made, rows=with_notes(rows, made.notes))


def _shapes(run: Run) -> Shapes:
    return run.shapes or (run.command.shapes if run.command else {})


def _defaults(tuner: Run | None, runs: list[Run]) -> dict[str, str]:
    """The compiler's defaults of the knobs that a search varied, as far as the log tells."""
    options = tuner.command.options if tuner is not None and tuner.command is not None else {}
    if options.get("tuningSearch", "fast") not in ("", "fast", "mixed") or not runs:
        return {}
    try:
        baseline = parse_settings(runs[0].build_route)
    except UsageError:
        return {}
    varied = variable_knobs(options.get("tuneBuildRoutes", ""))
    return {name: value for name, value in baseline.items() if name in varied}


def _row(run: Run, defaults: Mapping[str, str]) -> Row:
    """The measurement of a run.

    Raises:
        LeftOut: the run measured nothing that can be told.
    """
    if run.command is None:
        raise LeftOut(NO_BANNER)
    route, status = _route(run, run.command, defaults), _status(run)
    if run.unstable and status in (Status.OK, Status.INACCURATE):
        raise LeftOut(UNSTABLE)
    latency = _float(run.median) if status in (Status.OK, Status.INACCURATE) else None
    if status is Status.OK and latency is None:
        raise LeftOut(NOT_A_NUMBER if run.median else NOTHING_TIMED)
    return Row(
        route,
        status,
        latency,
        latency if status is Status.OK and route.is_default else None,
        message="" if status is Status.OK else run.error or f"trtexec ended with {run.end}",
        build_seconds=run.seconds.get("built"),
        load_seconds=run.seconds.get("deserialized", run.seconds.get("loaded")),
    )


def _route(run: Run, command: Command, defaults: Mapping[str, str]) -> Route:
    settings = dict(command.settings)
    if run.without_graph:
        settings["runtime.cuda_graph"] = "off"
    try:
        return Route({**settings, **parse_build_route(run.build_route, defaults)})
    except UsageError as error:
        raise LeftOut(UNREADABLE_ROUTE) from error


def _status(run: Run) -> Status:
    """How a run ended."""
    if run.end in ("PASSED", "ABORTED"):
        return Status.OK if run.end == "PASSED" else Status.CRASHED
    if run.end != "FAILED":
        raise LeftOut(NO_END)
    stages = (
        (run.inaccurate, Status.INACCURATE),
        (run.started, Status.CRASHED),
        ("built" in run.seconds, Status.LOAD_FAILED),
        (run.parsed, Status.BUILD_FAILED),
    )
    for reached, status in stages:
        if reached:
            return status
    raise LeftOut(NOT_STARTED)
