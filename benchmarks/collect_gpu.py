"""Collects a history on a GPU: many processes build and load beside each other, timings run alone.

    ROUTECAST_RTX_COMPILER_KNOBS=1 python benchmarks/collect_gpu.py FOLDER --minutes 9 --processes 14

Each process takes network after network and writes its own journal, ``FOLDER/history-N.jsonl``. What any journal in
FOLDER (or in ``--known``) holds already is not measured again, so that runs and hosts add to one history. The GPU lock
of the backend keeps loads and timings apart.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
import zlib
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from gpu_networks import gpu_networks

from routecast.datasets.errors import RoutecastError
from routecast.datasets.journal import Journal, read_journal
from routecast.datasets.measurement import Purpose
from routecast.datasets.model import open_model
from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.measure.runner import Limits
from routecast.tuner.measure.timing import TimingConfig
from routecast.tuner.measure.workbench import BenchConfig, Workbench

# Blocks of at least 10 ms: on a quiet GPU six pairs of them settle a ratio to a few tenths of a per cent.
TIMING = TimingConfig(block_ms=10.0, min_blocks=6, max_blocks=24, seconds=1.0)

Known = set[tuple[str, str]]


def gpu_plan(space: RouteSpace, count: int, seed: int) -> list[Route]:
    """Draws routes over all kinds of knobs: precision, then form, compiler and mixtures, mostly under fp16.

    One knob at a time would be nearly all compiler knobs, most of which change nothing.
    """
    rng = np.random.default_rng(seed)
    groups: dict[str, list[tuple[str, str]]] = {"precision": [], "form": [], "compiler": [], "other": []}
    for knob in space.knobs:
        group = {"pass": "form"}.get(knob.group, knob.group)
        for value in knob.alternatives:
            groups[group if group in groups else "other"].append((knob.name, value))
    half = {"precision.policy": "fp16"} if ("precision.policy", "fp16") in groups["precision"] else {}
    found: dict[Route, None] = {}

    def add(settings: dict[str, str]) -> None:
        route = space.canonical(Route(settings))
        if not route.is_default and len(found) < count:
            found[route] = None

    add(half)
    add({"precision.policy": "bf16"} if half else {})
    attempts = 0
    while len(found) < count and attempts < 30 * count:
        attempts += 1
        kind = rng.choice(["precision", "form", "compiler", "mixed"], p=[0.2, 0.25, 0.25, 0.3])
        base = dict(half) if rng.random() < 0.75 else {}
        if kind == "mixed":
            sizes = {
                "precision": 1,
                "form": int(rng.integers(0, 3)),
                "compiler": int(rng.integers(0, 4)),
                "other": 1,
            }
            for group, size in sizes.items():
                if group == "other" and rng.random() < 0.8:
                    continue
                base |= _some(groups[group], size, rng)
        else:
            base |= _some(groups[str(kind)], 1, rng)
            if "precision.keep" in base:
                base |= half
            if "precision.exclude" in base:
                base["precision.quantize"] = "int8"
        add(base)
    return list(found)


def _some(choices: list[tuple[str, str]], count: int, rng: np.random.Generator) -> dict[str, str]:
    if not choices:
        return {}
    names = sorted({name for name, _ in choices})
    picked = rng.permutation(names)[:count]
    return {str(name): str(rng.choice([v for n, v in choices if n == name])) for name in picked}


def known_routes(folders: list[Path]) -> Known:
    """Fingerprint and route of everything measured before."""
    found: Known = set()
    for folder in folders:
        for path in sorted(folder.glob("*.jsonl")):
            measurements, _, _ = read_journal(path)
            found |= {(item.fingerprint, str(item.route)) for item in measurements}
    return found


def make(name: str, folder: Path) -> Path:
    """Exports a network; called in a process of its own, which takes torch and its memory with it when it ends."""
    return next(network for network in gpu_networks() if network.name == name).make(folder)


def work(options: argparse.Namespace) -> None:
    """One process: takes networks until none or no time is left."""
    known = known_routes([options.folder, *options.known])
    backend = get_backend(options.backend)
    run = os.environ["ROUTECAST_RUN"]
    with Journal(options.folder / f"history-{options.worker}-{run}.jsonl") as journal:
        for network in gpu_networks():
            if time.time() > options.until:
                return
            if (options.only and network.name not in options.only) or (network.held_out and not options.held_out):
                continue
            if (options.folder / f"{network.name}.done").exists():
                continue
            try:
                os.close(os.open(options.claims / network.name, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            _network(network, backend, journal, known, options, run)


def _network(network, backend, journal, known, options, run) -> None:  # type: ignore[no-untyped-def]
    scratch = Path(tempfile.mkdtemp(prefix="routecast-", dir=options.scratch))
    began = time.time()
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            path = pool.submit(make, network.name, scratch).result()
        model = open_model(path, network.shapes, name=network.name, family=network.family)
        made = time.time() - began
        space = backend.space(model)
        seed = zlib.crc32(f"{network.name} {options.seed}".encode())
        routes = [(Route(), Purpose.CONTROL)]
        routes += [(route, Purpose.EXPLORE) for route in gpu_plan(space, options.routes, seed)]
        routes = [(route, why) for route, why in routes if (model.graph.fingerprint, str(route)) not in known]
        config = BenchConfig(ranges=network.ranges, limits=Limits(options.timeout), explore=TIMING)
        with Workbench(model, backend, space, scratch / "bench", config, run) as bench:
            journal.add_graph(model.graph)
            journal.add_environment(bench.environment)
            bench.start()
            print(
                f"{network.name}: exported in {made:.0f} s, {len(model.graph.nodes)} nodes, {len(routes)} routes",
                flush=True,
            )
            for route, purpose in routes:
                if time.time() > options.until:
                    return
                _one(network, bench, journal, route, purpose)
        (options.folder / f"{network.name}.done").touch()
    except RoutecastError as error:
        print(f"{network.name}: skipped: {str(error)[:300]}", flush=True)
    except Exception as error:
        print(f"{network.name}: FAILED: {type(error).__name__}: {str(error)[:300]}", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _one(network, bench, journal, route, purpose) -> None:  # type: ignore[no-untyped-def]
    began = time.time()
    item = bench.measure(route, purpose)
    journal.add(item)
    if not route.is_default and (artifact := bench.artifacts.get(item.identity)):
        shutil.rmtree(artifact.parent, ignore_errors=True)
    timing = (
        f"{item.latency_ms:.4f} ms, {item.ratio:.4f} [{item.ratio_low:.4f}, {item.ratio_high:.4f}]"
        if item.ratio
        else ""
    )
    print(
        f"{network.name}: {route.label()}: {item.status} {timing} build {item.build_seconds or 0:.1f} s load "
        f"{item.load_seconds or 0:.1f} s all {time.time() - began:.1f} s, {len(item.local_profile)} layers, "
        f"cos {item.accuracy.get('cos', float('nan')):.2g} {item.message[:160]}",
        flush=True,
    )


def main() -> None:
    """Starts the processes and waits for them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--known", type=Path, nargs="*", default=[])
    parser.add_argument("--backend", default="tensorrt-rtx")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--processes", type=int, default=14)
    parser.add_argument("--routes", type=int, default=20)
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--worker", type=int)
    parser.add_argument("--until", type=float)
    parser.add_argument("--claims", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.worker is not None:
        work(options)
        return
    claims = Path(tempfile.mkdtemp(prefix="routecast-claims-"))
    until = time.time() + 60 * options.minutes
    environment = {**os.environ, "ROUTECAST_RUN": uuid.uuid4().hex[:12]}
    command = [
        sys.executable,
        __file__,
        *sys.argv[1:],
        "--until",
        str(until),
        "--claims",
        str(claims),
        "--worker",
    ]
    children = [subprocess.Popen([*command, str(n)], env=environment) for n in range(options.processes)]
    for child in children:
        child.wait()
    statuses: dict[str, int] = {}
    for path in options.folder.glob(f"history-*-{environment['ROUTECAST_RUN']}.jsonl"):
        for item in read_journal(path)[0]:
            statuses[item.status] = statuses.get(item.status, 0) + 1
    total = sum(statuses.values())
    seconds = time.time() - until + 60 * options.minutes
    print(
        json.dumps(
            {
                "measured": total,
                "seconds": round(seconds),
                "per_second": round(total / seconds, 3),
                **statuses,
            }
        )
    )


if __name__ == "__main__":
    main()
