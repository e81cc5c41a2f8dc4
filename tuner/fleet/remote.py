"""The workers' side of a fleet: holds one model's workbench and measures the routes it is asked for.

Nothing here imports Ray: the driver makes an actor of ``RemoteWorker`` and a task of ``build_elsewhere``. Answers are
JSON, so that the driver can check them before it believes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from routecast.datasets.environment import Environment
from routecast.datasets.errors import RoutecastError
from routecast.datasets.measurement import Purpose
from routecast.datasets.route import Route
from routecast.tuner.backends.base import Backend
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.backends.tensorrt.lock import GpuLock
from routecast.tuner.fleet.bundle import Bundle, Files, read_files, unpack, write_files
from routecast.tuner.measure.workbench import Workbench

CORES = "cores"
"""Name of the lock of a machine's cores, which whoever times on them holds alone."""

_PREFIX = "routecast-worker-"


class RemoteWorker:
    """One measuring process on a worker: of a GPU, or of all cores of a machine.

    On a GPU the backend's own lock keeps timings apart. Where the cores are what is timed, everything that uses
    them holds the lock of the machine's cores, so that two workers of one machine never disturb each other.
    """

    def __init__(self, backend: str) -> None:
        """Imports the backend; a failure to do so ends the actor."""
        self._backend = get_backend(backend)
        self._cores = GpuLock(CORES)
        self._desk = _Desk(self._backend)

    def hello(self) -> bytes:
        """Versions, environment, and what the backend lacks here."""
        with self._alone():
            missing, environment = self._backend.lacks(), self._backend.environment().to_json()
        return _reply(versions=versions(), environment=environment, missing=missing)

    def open(self, key: str, bundle: Bundle) -> bytes:
        """Makes a model the one that is measured; says its route space here, or why it cannot be measured."""
        with self._alone():
            try:
                space = self._desk.open(key, bundle).space
            except RoutecastError as error:
                return _reply(unusable=self._desk.blame(error))
        return _reply(knobs=[asdict(knob) for knob in space.knobs], left_out=dict(space.left_out))

    def measure(self, route: str, purpose: str, build: Files | None = None) -> bytes:
        """Measures a route of the open model; ``build`` is its artifact when another host built it already.

        Returns:
            ``measurement``, or ``unusable`` when the unmodified model does not run, or ``broken`` when this
            host cannot go on.
        """
        wanted = Route.parse(route)
        with self._alone():
            try:
                bench = self._desk.started()
            except RoutecastError as error:
                return _reply(unusable=self._desk.blame(error))
            try:
                if build:
                    bench.accept(wanted, self._desk.received(build))
                measurement = bench.measure(wanted, Purpose(purpose))
            except RoutecastError as error:
                return _reply(broken=str(error))
            bench.discard(wanted)  # confirmations, which may be asked for, are kept elsewhere
        return _reply(measurement=measurement.to_json())

    def artifact(self, identity: str) -> tuple[str, Files] | None:
        """Name and files of the build of a measurement, None when it is not here."""
        path = self._desk.bench().artifacts.get(identity) if self._desk.key else None
        if path is None or not path.exists():
            return None
        beside = path.parent.glob(f"{path.name}*")  # external weights; the rewritten model where it is kept
        sources = path.parent.glob("model.onnx*")
        return path.name, read_files(path.parent, {file for file in (path, *beside, *sources) if file.is_file()})

    def close(self) -> None:
        """Ends the measuring processes and removes the files."""
        self._desk.clear()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        if self._backend.uses_gpu:
            yield
            return
        self._cores.alone()
        try:
            yield
        finally:
            self._cores.release()


class _Desk:
    """The workbench of the model at hand, in a folder that a later process removes if this one is killed."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.key = ""
        self._known_as = ""
        self._bench: Workbench | None = None
        self._started = False
        self._folder, self._lock = _own_folder()

    def open(self, key: str, bundle: Bundle) -> Workbench:
        """Makes a model the one at hand."""
        if self._bench is not None and self.key == key:
            return self._bench
        self._leave()
        self.key, self._started, self._known_as = key, False, str(bundle.subject.model.path)
        subject = unpack(bundle, self._folder / key)
        space = self.backend.space(subject.model, allow_numerics=subject.allow_numerics)
        work = self._folder / key / "bench"
        self._bench = Workbench(subject.model, self.backend, space, work, subject.config, subject.run)
        return self._bench

    def bench(self) -> Workbench:
        """The workbench of the model at hand."""
        if self._bench is None:
            raise RoutecastError("no model is open on this worker")
        return self._bench

    def started(self) -> Workbench:
        """The same, once the unmodified model has run."""
        bench = self.bench()
        if not self._started:
            bench.start()
            self._started = True
        return bench

    def received(self, build: Files) -> Path:
        """Writes a build that came from another host beside the workbench."""
        folder = self._folder / self.key / "received"
        shutil.rmtree(folder, ignore_errors=True)
        write_files(build, folder)
        return folder

    def blame(self, error: RoutecastError) -> dict[str, Any]:
        """An error about the model, with the path under which the user knows it."""
        inside = f"{self._folder}{os.sep}"
        words = [self._known_as if word.startswith(inside) else word for word in str(error).split(" ")]
        return {"message": " ".join(words), "exit_status": error.exit_status}

    def clear(self) -> None:
        """Removes everything."""
        self._leave()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _leave(self) -> None:
        if self._bench is not None:
            self._bench.__exit__(None, None, None)
            self._bench = None
        if self.key:
            shutil.rmtree(self._folder / self.key, ignore_errors=True)


_desks: dict[str, _Desk] = {}
"""The desk of this process by backend, for builds: Ray gives a process one build after the other."""


def build_elsewhere(
    backend: str, wanted: Environment, key: str, bundle: Sequence[Any], route: str
) -> tuple[bool, Files | None]:
    """Builds a route on a host that only has cores.

    Args:
        backend: its name.
        wanted: where it will be measured; what is built with other versions does not belong there.
        key: of the bundle.
        bundle: Ray's reference to it, alone in a list: Ray would fetch it for every build otherwise.
        route: what to build.

    Returns:
        Whether it was built, and the artifact's files. What cannot be built here is tried again by the host
        that measures, so that whatever fails is recorded where it counts.
    """
    import ray

    try:
        desk = _desks.get(backend) or _desks.setdefault(backend, _Desk(get_backend(backend)))
        if not _same_versions(desk.backend.environment(), wanted):
            return False, None
        bench = desk.bench() if desk.key == key else desk.open(key, ray.get(bundle[0]))
        folder = bench.build(Route.parse(route))
        if folder is None:
            return False, None
        return True, read_files(folder, (path for path in folder.rglob("*") if path.is_file()))
    except RoutecastError:
        return False, None


def _same_versions(builder: Environment, wanted: Environment) -> bool:
    """Whether a builder has what shapes a build in the same versions; it may lack what only running needs."""
    same = (builder.backend_version, builder.tuner_version) == (wanted.backend_version, wanted.tuner_version)
    return same and builder.versions.items() <= wanted.versions.items()


def versions() -> dict[str, str]:
    """Versions that driver and workers must share."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for package in ("routecast", "ray"):
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _reply(**content: Any) -> bytes:
    return json.dumps(content).encode()


def _own_folder() -> tuple[Path, int]:
    """A folder for this process, held by a lock; folders of processes that were killed are removed."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if left.stat().st_uid == os.getuid():
                lock = os.open(left / "lock", os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(left)
                finally:
                    os.close(lock)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = os.open(folder / "unlocked", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / "unlocked").rename(folder / "lock")  # whoever removes what is left finds it locked from the start
    return folder, lock
