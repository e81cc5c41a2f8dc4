"""What every backend offers: a route space, builds, and executables that run, time and profile."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy.typing as npt

from routecast.datasets.environment import Environment
from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.measurement import LocalTime
from routecast.datasets.route import Route, RouteSpace

if TYPE_CHECKING:
    from routecast.datasets.model import Model

Array = npt.NDArray[Any]


class BuildFailed(RoutecastError):
    """A route could not be built; the message is one line."""


class LoadFailed(RoutecastError):
    """An artifact could not be loaded or did not run; the message is one line."""


@dataclass(frozen=True)
class Artifact:
    """What a build left on disk.

    Attributes:
        path: the file to load.
        hash: SHA-256 of its content, side files included, hexadecimal; equal hashes are equal builds.
        bytes: its size, side files included.
        build_seconds: time the build took.
    """

    path: Path
    hash: str
    bytes: int
    build_seconds: float

    @classmethod
    def of(cls, path: Path, build_seconds: float, side_files: Iterable[Path] = ()) -> Artifact:
        """Describes a built file and the files it needs beside it (such as external weights)."""
        digest, size = hashlib.sha256(), 0
        for file in (path, *sorted(side_files)):
            size += file.stat().st_size
            with file.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
        return cls(path, digest.hexdigest(), size, build_seconds)


@dataclass(frozen=True)
class BuildRequest:
    """One build.

    Attributes:
        model: the unmodified ONNX file with fixed shapes.
        route: what to build; only the knobs of the stage ``build`` act here.
        folder: an existing empty folder to build in.
        calibration: input sets for post-training quantisation, ``.npz`` files with one array per input.
        node_names: names of the operators, by index into ``Graph.nodes``.
    """

    model: Path
    route: Route
    folder: Path
    calibration: tuple[Path, ...] = ()
    node_names: tuple[str, ...] = ()


class Executable(ABC):
    """A built route, loaded and ready in this process."""

    @abstractmethod
    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One inference: outputs by the names that the original model gives them.

        Raises:
            LoadFailed: the backend refused or failed to run it.
        """

    @abstractmethod
    def prepare(self, inputs: Mapping[str, Array]) -> None:
        """Sets the inputs that ``time`` and ``profile`` use, so that neither pays for preparing them."""

    @abstractmethod
    def time(self, repeats: int) -> float:
        """Median latency in ms of ``repeats`` back-to-back inferences of the prepared inputs, no warm-up."""

    @abstractmethod
    def profile(self, repeats: int, nodes: Mapping[str, int] | None = None) -> list[LocalTime]:
        """Local time of every layer, in order of execution: ms per inference, median over ``repeats``.

        Only an executable loaded with ``profiling=True`` can be profiled.

        Args:
            repeats: number of inferences profiled, after one that is not counted.
            nodes: index into ``Graph.nodes`` by node name; layers that match none get -1.
        """

    @abstractmethod
    def close(self) -> None:
        """Frees what it holds; it cannot be used after."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class Check:
    """One finding of ``routecast doctor``.

    Attributes:
        what: what was looked at.
        ok: whether it works here.
        detail: what was found.
        fix: what to do about it, empty when nothing needs doing.
    """

    what: str
    ok: bool
    detail: str = ""
    fix: str = ""


class Backend(ABC):
    """What builds and runs a route.

    Attributes:
        name: as the command line and the history call it.
        preload: modules that a measuring process imports before it forks its children.
        pins_threads: whether it keeps threads of its own on the cores after the first, so that the caller is timed best
            on the first.
        uses_gpu: whether it is timed on a GPU, which then is what a worker of a fleet has for itself; else the cores.
        portable_builds: whether a build made on one host, with or without a GPU, runs on others of the same version.
        compiles_at_load: groups of build knobs that act again when an artifact is loaded, so that equal artifacts may
            still run at different speeds.
        tuner_knobs: group of the knobs that the vendor's own tuner can search; empty when it has none.
    """

    name: ClassVar[str]
    preload: ClassVar[tuple[str, ...]] = ()
    pins_threads: ClassVar[bool] = False
    uses_gpu: ClassVar[bool] = False
    portable_builds: ClassVar[bool] = False
    compiles_at_load: ClassVar[frozenset[str]] = frozenset()
    tuner_knobs: ClassVar[str] = ""

    @abstractmethod
    def environment(self) -> Environment:
        """Where measurements made now, in this process, are made."""

    @abstractmethod
    def space(self, model: Model, *, allow_numerics: bool = True) -> RouteSpace:
        """The knobs that can matter to a model, and why the others cannot.

        Args:
            model: the model.
            allow_numerics: whether knobs that may change results are wanted.
        """

    @abstractmethod
    def build(self, request: BuildRequest) -> Artifact:
        """Builds a route.

        Raises:
            BuildFailed: it could not be built.
        """

    @abstractmethod
    def load(self, artifact: Artifact, route: Route, model: Path, *, profiling: bool = False) -> Executable:
        """Loads what ``build`` left; only the knobs of the stage ``load`` act here.

        Args:
            artifact: what was built.
            route: the whole route.
            model: the unmodified ONNX file with fixed shapes.
            profiling: whether ``Executable.profile`` will be used; such an executable is not for timing.

        Raises:
            LoadFailed: it could not be loaded.
        """

    @abstractmethod
    def export(self, artifact: Path, route: Route, folder: Path) -> Path:
        """Puts a built route into ``folder`` with all that deploying it needs, and returns the file to load."""

    def report_waits(self, waiting: Callable[[], AbstractContextManager[object]]) -> None:
        """Takes what to enter while another process holds the device."""
        del waiting  # by default none is shared

    def tuner_file(self, routes: Sequence[Route], base: Route) -> str:
        """What the vendor's own tuner reads to try routes; empty when it has none.

        Args:
            routes: the best first; each changes knobs of the group ``tuner_knobs`` besides what ``base`` sets.
            base: what all of them have in common.
        """
        return ""

    def device_state(self) -> dict[str, float]:
        """The device right now, see ``Measurement.device_state``; empty when the backend cannot tell."""
        return {}

    @abstractmethod
    def checks(self) -> list[Check]:
        """What works here and what does not, for ``routecast doctor``."""

    def lacks(self) -> list[str]:
        """What keeps it from measuring here, and what to do, one line each."""
        return [f"{check.what}: {check.detail}; {check.fix}" for check in self.checks() if not check.ok]

    def need_to_measure(self) -> None:
        """Makes sure that it can measure here.

        Raises:
            UsageError: it cannot.
        """
        if lacks := self.lacks():
            raise UsageError(f"{self.name} cannot measure here: {'; '.join(lacks)}")


def one_line(error: BaseException, limit: int = 300) -> str:
    """The first line of an error's text that says something, shortened to ``limit`` characters."""
    lines = (line.strip() for line in str(error).splitlines())
    text = next((line for line in lines if line), type(error).__name__)
    return text if len(text) <= limit else text[: limit - 3] + "..."
