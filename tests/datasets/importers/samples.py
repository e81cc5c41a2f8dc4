"""Files as trtexec and Torch-TensorRT write them, made from what a test wants in them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

DEFAULTS = {"conv_lowering": "on", "kgen:tiling": "2", "concat_elim": "on", "peep:max": "0"}
EXPRESSION = "-conv_lowering=[on|off] -kgen:tiling=[0|1|2]"
ONNX = "/elsewhere/models/net.onnx"


def route(**settings: str) -> str:
    """A build route as trtexec writes it: every knob of the expression, defaults too."""
    values = {"conv_lowering": "on", "kgen:tiling": "2"}
    values.update({name.replace("__", ":"): value for name, value in settings.items()})
    return " ".join(f"-{name}={value}" for name, value in values.items())


def header(*options: str, onnx: str = ONNX, **changes: Any) -> dict[str, Any]:
    """The first line of trtexec's tuning cache."""
    argv = ["/usr/bin/trtexec", f"--onnx={onnx}", f"--tuneBuildRoutes={EXPRESSION}", *options]
    return {
        "tuner_version": "2.19.45",
        "accuracy_algorithm": "L0",
        "accuracy_parameter": {"atol": 9.999999747378752e-06, "rtol": 9.999999747378752e-06, "epsilon": 0.0},
        "searching_algorithm": "fast",
        "command_line": " ".join(argv),
        "default_build_route": " ".join(f"-{name}={value}" for name, value in DEFAULTS.items()),
        "tuning_expr": EXPRESSION,
        "files": {"onnx": onnx},
        "argv": argv,
        **changes,
    }


def torch_header(**changes: Any) -> dict[str, Any]:
    """The first line of Torch-TensorRT's tuning cache."""
    names = ("tuner_version", "accuracy_algorithm", "accuracy_parameter", "searching_algorithm", "tuning_expr")
    made = {name: value for name, value in header().items() if name in (*names, "default_build_route")}
    return {**made, "partition_key": "0123456789abcdef", "user_tuning_cache_file": "/tmp/tune.jsonl", **changes}


def row(number: int, build_route: str, gpu_time: float | None, **changes: Any) -> dict[str, Any]:
    """A line of a tuning cache."""
    return {
        "iter": number,
        "build_route": build_route,
        "crash": gpu_time is None,
        "error_message": "" if gpu_time is not None else "child killed by signal 11 (Segmentation fault)",
        "accuracy_loss": None,
        "gpu_time": gpu_time,
        **changes,
    }


def text(rows: Iterable[Mapping[str, Any] | str]) -> str:
    """JSON lines; a string is taken as it is."""
    return "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in rows)


def log_lines(*said: str, level: str = "I") -> list[str]:
    """Lines of trtexec's log."""
    return [f"[08/27/2026-12:21:02] [{level}] {line}" for line in said]


def banner(event: str, *options: str, version: str = "110100") -> str:
    """What trtexec prints when it begins and ends."""
    return f"&&&& {event} TensorRT.trtexec [TensorRT v{version}] [b106] # trtexec {' '.join(options)}"


DEVICE = (
    "Selected Device: NVIDIA H100 PCIe",
    "Selected Device ID: 0",
    "Selected Device UUID: GPU-00000000-0000-0000-0000-000000000000",
    "Compute Capability: 9.0",
    "SMs: 114",
    "Device Global Memory: 81071 MiB",
    "Memory Bus Width: 5120 bits (ECC enabled)",
    "Application Compute Clock Rate: 1.755 GHz",
    "Application Memory Clock Rate: 1.593 GHz",
    "TensorRT version: 11.1.0",
)


def summary(median: str) -> list[str]:
    """The lines of times at the end of a run."""
    spread = f"min = 0.9 ms, max = 1.1 ms, mean = 1 ms, median = {median} ms, percentile(90%) = 1.05 ms"
    return log_lines(
        "=== Performance summary ===", "Throughput: 1000 qps", f"Latency: {spread}", f"GPU Compute Time: {spread}"
    )


def run_log(*options: str, median: str = "1.25", end: str = "PASSED", version: str = "110100") -> list[str]:
    """A whole run of trtexec."""
    return [
        banner("RUNNING", *options, version=version),
        *log_lines(*DEVICE),
        *log_lines("Finished parsing network model. Parse time: 0.0147091", "Engine built in 7.97911 sec."),
        *log_lines("Engine deserialized in 0.00743164 sec."),
        *log_lines("Input binding for x with dimensions 4x64 and type fp32 is created."),
        *log_lines("Starting inference"),
        *summary(median),
        banner(end, *options, version=version),
    ]


def tuner_log(children: Sequence[tuple[str, str | None]], *options: str, onnx: str = ONNX) -> list[str]:
    """A log of the tuner: (build route, median) of each route; without a median it crashed."""
    own = (f"--onnx={onnx}", f"--tuneBuildRoutes={EXPRESSION}", "--tuningCacheFile=./tuned.json", *options)
    made = [banner("RUNNING", *own), *log_lines("Tuning phase1: 2 iterations.")]
    for number, (build_route, median) in enumerate(children):
        child = (f"--onnx={onnx}", f"--setBuildRoute={build_route}", f"--tuningResultFile=/tmp/iter{number}.json")
        made.append(f"&&&& TASK_BEGIN [iter={number}] BuildRoute = '{build_route}'")
        whole = run_log(*child, median=median or "1")
        if median is None:
            failed = f"Iteration [{number}] failed: child killed by signal 11 (Segmentation fault)"
            made += [*whole[:12], *log_lines(failed, level="W")]
            made.append(f"&&&& TASK_ABORT [iter={number}] BuildRoute = '{build_route}'")
        else:
            made += [*whole, f"&&&& TASK_END [iter={number}] BuildRoute = '{build_route}'"]
    return [*made, *log_lines("Best iteration: none"), banner("PASSED", *own)]


def times(values: Iterable[Any], old: bool = False) -> str:
    """``--exportTimes``, with the names of release 7 when ``old``."""
    before, after = ("startInMs", "inMs") if old else ("startEnqMs", "h2dMs")
    return json.dumps([{before: 0.1, after: 0, "computeMs": value, "latencyMs": 9.0} for value in values], indent=1)


def profile(layers: Mapping[str, Any], name: str = "medianMs") -> str:
    """``--exportProfile``."""
    rows = [{"name": layer, "timeMs": 99.0, "averageMs": 5.0, name: time} for layer, time in layers.items()]
    return json.dumps([{"count": 100}, *rows], indent=1)
