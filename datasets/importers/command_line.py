"""What a trtexec command line says of what was measured: the model, the shapes, and the settings that all routes share.

Options come from trtexec's sources (releases 7 to 11.1). Only those known to change nothing, and those that routecast
has a knob for, are accepted: any other may have changed what was built.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from routecast.datasets.route import Route

CUDA_GRAPHS = (11, 0, 0)
"""Since this version trtexec replays a CUDA graph unless it is told not to."""

_HARMLESS = frozenset(
    {
        "accuracyAlgorithm", "accuracyThreshold", "atol", "avgRuns", "continue", "device", "dryRun",
        "dumpLayerInfo", "dumpOptimizationProfile", "dumpOutput", "dumpProfile", "dumpRawBindingsToFile", "dumpRefit",
        "duration", "explicitBatch", "exportLayerInfo", "exportOutput", "exportProfile", "exportTimes", "idleTime",
        "includeDataTransfers", "iterations", "loadEngine", "loadInputs", "loadRefOutputs", "noBuilderCache",
        "noDataTransfers", "noSpinWait", "onnx", "percentile", "profilingVerbosity", "refPair", "rtol",
        "saveAllEngines", "saveEngine", "separateProfileRun", "setBuildRoute", "sleepTime", "stronglyTyped",
        "timingCacheFile", "tuneBuildRouteFile", "tuneBuildRoutes", "tuningCacheFile", "tuningResultFile",
        "tuningSearch", "tuningTimeOut", "useSpinWait", "verbose", "warmUp",
    }
)  # fmt: skip
_READ = frozenset({"minShapes", "optShapes", "maxShapes", "shapes", "infStreams", "streams", "useCudaGraph"})
_SETTINGS: Mapping[str, tuple[str, Mapping[str, str], tuple[str, ...]]] = {
    # option: (knob, the knob's value by the option's, the option's values that are the default)
    "builderOptimizationLevel": ("builder.optimization_level", {}, ("-1", "3")),
    "maxAuxStreams": ("builder.aux_streams", {}, ("-1",)),
    "maxTactics": ("builder.max_tactics", {}, ("-1",)),
    "tilingOptimizationLevel": ("builder.tiling", {"1": "fast", "2": "moderate", "3": "full"}, ("0",)),
    "noTF32": ("builder.tf32", {"": "off"}, ()),
    "noCudaGraph": ("runtime.cuda_graph", {"": "off"}, ()),
}
_OUTPUTS = ("exportTimes", "exportProfile", "tuningCacheFile")
_SIZES = re.compile(r"\d+(x\d+)*", re.ASCII)
_VALUE = re.compile(r"[\w.+-]+", re.ASCII)


@dataclass(frozen=True)
class Command:
    """A trtexec command line.

    Attributes:
        options: values by name of option, the last one where it is repeated; empty for a flag.
        onnx: path of the model, empty when none is named.
        shapes: input shapes by name.
        settings: knobs other than the compiler's that differ from their default.
        outputs: names of the files it writes that can be imported.
        reference_pairs: number of sets of reference outputs that each route is checked on.
        refused: why what it measured has no route, empty when it has one.
    """

    options: Mapping[str, str]
    onnx: str = ""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    settings: Route = field(default_factory=Route)
    outputs: frozenset[str] = frozenset()
    reference_pairs: int = 0
    refused: str = ""

    @property
    def tunes(self) -> bool:
        """Whether it is the tuner itself, which starts a trtexec for each route."""
        return any(name in self.options for name in ("tuneBuildRoutes", "tuneBuildRouteFile", "continue"))


def of_line(text: str) -> list[str]:
    """The arguments of a command line with a shell's quotes.

    Raises:
        ValueError: a quote is never closed.
    """
    return shlex.split(text)


def of_banner(text: str) -> list[str]:
    """The arguments of a command line as trtexec's log prints it: without quotes, though build routes hold spaces."""
    return re.split(r"\s+(?=--)", text.strip())


def read_command(arguments: Sequence[str], version: tuple[int, ...] | None) -> Command:
    """Reads the arguments of a trtexec run, the program's name among them.

    Args:
        arguments: as the program got them.
        version: TensorRT's, None when it is not known: then it is one that has a tuner, 11.1 or later.
    """
    pairs = [_split(argument) for argument in arguments[1:]]
    options = {name: value for name, value in pairs if name}
    refused = _refuse(options, [argument for argument, (name, _) in zip(arguments[1:], pairs, strict=True) if not name])
    settings, unknown = _settings(options, version)
    shapes, wrong = _shapes(options)
    named = [name for name, _ in pairs]
    return Command(
        options,
        options.get("onnx", ""),
        shapes,
        settings,
        frozenset(PurePosixPath(options[name]).name for name in _OUTPUTS if options.get(name)),
        max(named.count("refPair"), int("loadRefOutputs" in options)),
        refused or unknown or wrong,
    )


def _split(argument: str) -> tuple[str, str]:
    if not argument.startswith("--"):
        return "", argument
    name, _, value = argument[2:].partition("=")
    return name, value


def _refuse(options: Mapping[str, str], loose: Iterable[str]) -> str:
    if any(argument.strip() for argument in loose):
        return "its command line cannot be read"
    if any(options.get(name, "1") not in ("1", "") for name in ("infStreams", "streams")):
        return "several inferences ran at once (--infStreams), so the times of each are no latency"
    for name in options:
        if name not in _HARMLESS | _READ | _SETTINGS.keys():
            return f"option --{name[:40]} may change what is built, and routecast has no knob for it"
    return ""


def _settings(options: Mapping[str, str], version: tuple[int, ...] | None) -> tuple[Route, str]:
    found: dict[str, str] = {}
    if version is not None and version < CUDA_GRAPHS and "useCudaGraph" not in options:
        found["runtime.cuda_graph"] = "off"
    for option, (knob, values, defaults) in _SETTINGS.items():
        if option not in options or options[option] in defaults:
            continue
        value = values.get(options[option], "" if values else options[option])
        if not _VALUE.fullmatch(value):
            return Route(), f"option --{option} has a value that routecast does not know"
        found[knob] = value
    return Route(found), ""


def _shapes(options: Mapping[str, str]) -> tuple[dict[str, tuple[int, ...]], str]:
    given = [options[name] for name in ("minShapes", "optShapes", "maxShapes", "shapes") if options.get(name)]
    found: dict[str, tuple[int, ...]] = {}
    for item in ",".join(given).split(",") if given else ():
        name, colon, sizes = item.strip().rpartition(":")
        if not (name and colon and _SIZES.fullmatch(sizes)) or len(sizes) > 200:
            return {}, "its shapes cannot be read"
        shape = tuple(map(int, sizes.split("x")))
        if found.setdefault(name.strip("'\""), shape) != shape:
            return {}, "it was built for a range of shapes, and routecast's models have fixed ones"
    return found, ""


def parse_version(digits: str) -> tuple[int, int, int] | None:
    """The version in a banner: ``110100`` is 11.1.0 and, before version 10, ``8601`` is 8.6.1."""
    if not digits.isascii() or not digits.isdigit() or len(digits) > 8:
        return None
    number, major = int(digits), 10_000 if len(digits) > 4 else 1000
    return number // major, number % major // 100, number % 100
