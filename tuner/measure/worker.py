"""What happens inside the forked child: build, load, check, time and profile one route."""

from __future__ import annotations

import contextlib
import errno
import json
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.measurement import Status
from routecast.datasets.route import Route
from routecast.tuner.backends.base import Artifact, Backend, BuildFailed, BuildRequest, Executable, LoadFailed
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.measure.accuracy import AccuracyLimit, check_reference, losses
from routecast.tuner.measure.inputs import load_arrays, save_arrays
from routecast.tuner.measure.timing import TimingConfig, caller_on_first_core, time_beside

PROFILE_REPEATS = 5
DEFAULT_KEY = "default"
"""Names the default route's build."""
RECORD = "artifact.json"
"""What describes a finished build, in its folder."""
WAITING = "waiting"
"""A file in the job's folder while the child waits for a device that another process holds."""


@dataclass(frozen=True)
class Job:
    """One thing for a child to do; it travels as JSON.

    Attributes:
        kind: ``reference`` runs the unmodified model and keeps its outputs, ``build`` builds a route, ``measure``
            measures one.
        folder: the child's own folder: ``stage``, ``result.json`` and ``log`` appear there.
        backend: name of the backend.
        model: ONNX file with fixed shapes.
        inputs, references: input sets and the outputs expected, ``.npz`` files, in pairs.
        artifacts: folder of finished builds, shared by all children of a workbench.
        build_key: names the route's build in ``artifacts``; routes that differ only at load share it, confirmations
            have one of their own.
        timed_hashes: hashes of artifacts that were timed before, under the same settings at load; a build that is equal
            to one of them is not loaded and timed again.
        node_names: names of the graph's operators by index.
        route: text form of the route.
        timing: how to time.
        limit: the accuracy limit.
        seed: of block order and bootstrap.
    """

    kind: str
    folder: str
    backend: str
    model: str
    inputs: tuple[str, ...]
    references: tuple[str, ...]
    artifacts: str = ""
    build_key: str = ""
    timed_hashes: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()
    route: str = ""
    timing: TimingConfig = field(default_factory=TimingConfig)
    limit: AccuracyLimit = field(default_factory=AccuracyLimit)
    seed: int = 0

    def save(self) -> Path:
        """Writes the job into its folder."""
        path = Path(self.folder) / "job.json"
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def load(cls, path: Path) -> Job:
        """Reads what ``save`` wrote."""
        data = json.loads(path.read_text())
        data["timing"] = TimingConfig(**data["timing"])
        data["limit"] = AccuracyLimit(**data["limit"])
        for name in ("inputs", "references", "timed_hashes", "node_names"):
            data[name] = tuple(data[name])
        return cls(**data)


def run_job(path: Path) -> None:
    """Does a job and writes ``result.json`` in its folder, whole or not at all."""
    job = Job.load(path)
    work = {"reference": _reference, "build": _build_only, "measure": _measure}[job.kind]
    try:
        result = work(job, lambda stage: _write_stage(job, stage))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        result = {"fatal": f"the disk that holds {job.folder} is full: free some space, then go on with --resume"}
    result["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    partial = Path(job.folder, "result.partial")
    partial.write_text(json.dumps(result))
    partial.rename(Path(job.folder, "result.json"))


def _write_stage(job: Job, stage: str) -> None:
    """Leaves word of what is being done, for when this process does not live to tell."""
    Path(job.folder, "stage").write_text(stage)


class _Waits:
    """Leaves word while a device is waited for, and adds up the time, in seconds."""

    def __init__(self, job: Job) -> None:
        self._path = Path(job.folder, WAITING)
        self.seconds = 0.0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        began = time.perf_counter()
        self._path.touch()
        try:
            yield
        finally:
            self._path.unlink()
            self.seconds += time.perf_counter() - began


def _sharing(job: Job) -> tuple[Backend, _Waits]:
    """The job's backend, and how long it has waited for others."""
    backend, waits = get_backend(job.backend), _Waits(job)
    backend.report_waits(waits)
    return backend, waits


def _reference(job: Job, stage: Callable[[str], None]) -> dict[str, Any]:
    """Outputs of the unmodified model, by ONNX Runtime on the CPU without any graph optimisation."""
    from routecast.tuner.backends.onnxruntime.reference import (
        run_unmodified,
    )  # the reference is the same for every backend

    stage("running the unmodified model")
    try:
        for index, (inputs, target) in enumerate(zip(job.inputs, job.references, strict=True)):
            outputs = run_unmodified(Path(job.model), load_arrays(Path(inputs)))
            check_reference(outputs, index)
            save_arrays(Path(target), outputs)
    except UsageError as error:
        return {"usage_error": str(error)}
    except RoutecastError as error:
        return {"error": str(error)}
    return {}


def _build_only(job: Job, stage: Callable[[str], None]) -> dict[str, Any]:
    backend, _ = _sharing(job)
    stage("building")
    try:
        _shared_build(backend, job, Route.parse(job.route), job.build_key)
    except BuildFailed as error:
        return {"status": Status.BUILD_FAILED, "message": str(error)}
    return {"built": True}


def _measure(job: Job, stage: Callable[[str], None]) -> dict[str, Any]:
    (backend, waits), route = _sharing(job), Route.parse(job.route)
    result: dict[str, Any] = {}
    try:
        stage("building")
        artifact = _shared_build(backend, job, route, job.build_key)
        result |= {
            "artifact": str(artifact.path),
            "build_seconds": artifact.build_seconds,
            "engine_bytes": artifact.bytes,
            "engine_hash": artifact.hash,
        }
        if artifact.hash in job.timed_hashes:
            return {**result, "twin": True}
        stage("loading")
        began, waited = time.perf_counter(), waits.seconds
        candidate = backend.load(artifact, route, Path(job.model))
        result["load_seconds"] = time.perf_counter() - began - (waits.seconds - waited)
        stage("checking accuracy")
        result |= _accuracy(candidate, job)
        stage("timing")
        result |= _timed(backend, candidate, job)
        stage("profiling")
        result["local_profile"] = _profiled(backend, artifact, route, job)
    except BuildFailed as error:
        return {**result, "status": Status.BUILD_FAILED, "message": str(error)}
    except LoadFailed as error:
        return {**result, "status": Status.LOAD_FAILED, "message": str(error)}
    return result


def _shared_build(backend: Backend, job: Job, route: Route, key: str) -> Artifact:
    finished = Path(job.artifacts, key)
    record = finished / RECORD
    if not record.exists():
        artifact = _build(backend, job, route, Path(job.folder, f"build-{key}"))
        folder = Path(job.folder, f"build-{key}")
        path = artifact.path  # relative where it can be: the folder is moved, and may come from another host
        if path.is_relative_to(folder):
            path = path.relative_to(folder)
        (folder / RECORD).write_text(json.dumps({**asdict(artifact), "path": str(path)}))
        try:
            folder.rename(finished)
        except OSError:  # another child finished the same build first
            shutil.rmtree(folder)
    data = json.loads(record.read_text())
    return Artifact(**{**data, "path": finished / data["path"]})


def _build(backend: Backend, job: Job, route: Route, folder: Path) -> Artifact:
    folder.mkdir(parents=True)
    calibration = tuple(Path(path) for path in job.inputs)
    return backend.build(BuildRequest(Path(job.model), route, folder, calibration, job.node_names))


def _accuracy(candidate: Executable, job: Job) -> dict[str, Any]:
    worst: dict[str, float] = {}
    for inputs, reference in zip(job.inputs, job.references, strict=True):
        try:
            found = losses(candidate.run(load_arrays(Path(inputs))), load_arrays(Path(reference)))
        except ValueError as error:
            return {"status": Status.INACCURATE, "message": str(error), "accuracy": worst}
        worst = {metric: max(loss, worst.get(metric, 0.0)) for metric, loss in found.items()}
    reason = job.limit.reason(worst)
    return {"status": Status.INACCURATE if reason else Status.OK, "message": reason, "accuracy": worst}


def _timed(backend: Backend, candidate: Executable, job: Job) -> dict[str, Any]:
    inputs = load_arrays(Path(job.inputs[0]))
    default = backend.load(_shared_build(backend, job, Route(), DEFAULT_KEY), Route(), Path(job.model))
    for executable in (candidate, default):
        executable.prepare(inputs)
    with caller_on_first_core() if backend.pins_threads else contextlib.nullcontext():
        timing = time_beside(candidate, default, job.timing, job.seed)
    state = backend.device_state()
    candidate.close()
    default.close()
    return {
        **asdict(timing),
        "latency_ms": median(timing.blocks_ms),
        "default_ms": median(timing.default_blocks_ms),
        "device_state": state,
    }


def _profiled(backend: Backend, artifact: Artifact, route: Route, job: Job) -> list[dict[str, Any]]:
    nodes = {name: index for index, name in enumerate(job.node_names) if name}
    with backend.load(artifact, route, Path(job.model), profiling=True) as executable:
        executable.prepare(load_arrays(Path(job.inputs[0])))
        return [asdict(layer) for layer in executable.profile(PROFILE_REPEATS, nodes)]
