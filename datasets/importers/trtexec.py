"""trtexec's tuning cache (``--tuningCacheFile``): a header, then one line for each route that was tried.

The format is that of trtexec 11.1's sources. Its traps, and what is made of them:

- ``iter`` begins again in the second phase of a mixed search: each phase is compared with its own default route.
- A line lists every knob of the expression, defaults too: the header's ``default_build_route`` tells which they are.
- A route that failed the accuracy check has ``crash`` false, a message and a real time: it is ``inaccurate``.
- ``gpu_time`` is a mean with warm-up runs in it. The ratio to the default, timed the same way, suffers less.
- A value that is not a number is written as null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from routecast.datasets.build_routes import BuildRouteReader, parse_settings
from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.importers.command_line import Command, of_line, read_command
from routecast.datasets.importers.reading import Damaged, lines, parse_json
from routecast.datasets.importers.rows import CacheRows, Losses
from routecast.datasets.importers.session import Session, one_line

BACKEND = "tensorrt"
NO_HEADER = "the header of the cache is lost, so nothing tells the default route"
NO_DEFAULTS = "the header of the cache does not say the default route"


def read_cache(text: str) -> list[Session]:
    """Reads a tuning cache; several may follow each other in one file."""
    return [
        _session(part.header, part.lines) if part.header is not None else _headless(part.lines)
        for part in split_parts(text)
    ]


@dataclass
class Part:
    """A header and the lines that follow it."""

    header: Mapping[str, Any] | None
    lines: list[str] = field(default_factory=list)


def split_parts(text: str) -> Iterator[Part]:
    """Splits caches that follow each other; lines before the first header are a part without one."""
    part = Part(None)
    for line in lines(text):
        if '"tuning_expr"' in line and (header := _header(line)) is not None:
            if part.header is not None or part.lines:
                yield part
            part = Part(header)
        else:
            part.lines.append(line)
    if part.header is not None or part.lines:
        yield part


def _header(line: str) -> dict[str, Any] | None:
    try:
        held = parse_json(line)
    except Damaged:
        return None
    return held if isinstance(held, dict) and "tuning_expr" in held else None


def _headless(found: list[str]) -> Session:
    return Session(Environment(BACKEND, "", ""), skipped=Counter({NO_HEADER: len(found)}))


def _session(header: Mapping[str, Any], found: list[str]) -> Session:
    environment = Environment(BACKEND, "", "", tuner_version=one_line(header.get("tuner_version") or "", 40))
    command, refused = _command(header)
    defaults = default_settings(header)
    if defaults is None:
        return Session(environment, skipped=Counter({NO_DEFAULTS: len(found)}))
    rows = CacheRows(
        BuildRouteReader(defaults), command.settings, Losses.of(header, command.reference_pairs), restarts=True
    )
    for line in found:
        rows.add(line)
    return Session(
        environment,
        rows.rows(),
        command.onnx or _recorded(header),
        command.shapes,
        rows.skipped,
        rows.notes,
        refused=refused or command.refused,
    )


def default_settings(header: Mapping[str, Any]) -> dict[str, str] | None:
    """The compiler's defaults by name of knob, None when the header does not hold them."""
    text = header.get("default_build_route")
    try:
        return parse_settings(text) if isinstance(text, str) and text.strip() else None
    except UsageError:
        return None


def _command(header: Mapping[str, Any]) -> tuple[Command, str]:
    arguments = header.get("argv")
    if isinstance(arguments, list) and all(isinstance(argument, str) for argument in arguments) and arguments:
        return read_command(arguments, None), ""
    try:
        return read_command(of_line(str(header["command_line"])), None), ""
    except (KeyError, ValueError):
        return Command({}), "its command line cannot be read"


def _recorded(header: Mapping[str, Any]) -> str:
    files = header.get("files")
    path = files.get("onnx") if isinstance(files, dict) else None
    return path if isinstance(path, str) else ""
