"""The backends ``tensorrt`` and ``tensorrt-rtx``."""

from __future__ import annotations

import contextlib
import shutil
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from routecast.datasets.environment import Environment
from routecast.datasets.errors import MissingPackage, RoutecastError
from routecast.datasets.exporters import route_expression
from routecast.datasets.model import Model
from routecast.datasets.route import Route, RouteSpace
from routecast.tuner.backends.base import (
    Artifact,
    Backend,
    BuildFailed,
    BuildRequest,
    Check,
    LoadFailed,
    one_line,
)
from routecast.tuner.backends.tensorrt.api import TENSORRT, TENSORRT_RTX, Bindings
from routecast.tuner.backends.tensorrt.builder import Target, build_engine, make_logger
from routecast.tuner.backends.tensorrt.channel import OPT_IN, REASON, compiler_environment, opted_in
from routecast.tuner.backends.tensorrt.checks import tensorrt_checks
from routecast.tuner.backends.tensorrt.environment import device_state, gpu_environment, gpu_facts
from routecast.tuner.backends.tensorrt.executable import TensorRtExecutable
from routecast.tuner.backends.tensorrt.export import export
from routecast.tuner.backends.tensorrt.gpu import require_gpu, this_gpu
from routecast.tuner.backends.tensorrt.knobs import Listing, parse_listing, snapshot
from routecast.tuner.backends.tensorrt.lock import GpuLock
from routecast.tuner.backends.tensorrt.runtime_cache import context_with_cache
from routecast.tuner.backends.tensorrt.space import (
    fp8_refused,
    parse_capability,
    rtx_builder,
    tensorrt_builder,
    tensorrt_space,
)
from routecast.tuner.passes.base import GraphPass
from routecast.tuner.passes.conversion import Conversion
from routecast.tuner.passes.folding import Folding
from routecast.tuner.passes.gemm import GemmLowering
from routecast.tuner.passes.lowering import Lowering
from routecast.tuner.passes.merging import Merging
from routecast.tuner.passes.onnxscript import OnnxScript
from routecast.tuner.passes.onnxslim import OnnxSlim
from routecast.tuner.passes.pipeline import run_passes
from routecast.tuner.passes.quantization import Quantization
from routecast.tuner.passes.raising import Raising
from routecast.tuner.passes.reduced_precision import ReducedPrecision
from routecast.tuner.space import without_numerics


def _passes(quantization: Quantization) -> list[GraphPass]:
    """In the order of application: structure first, then precision, which would hide the patterns.

    Folding, raising and merging come before onnxslim, which does some of the same and would leave them nothing.
    """
    form = [Conversion(), Folding(), Raising(), Merging(), OnnxSlim(), Lowering(), GemmLowering(), OnnxScript()]
    return [*form, quantization, ReducedPrecision()]


def _link(model: Path, target: Path) -> None:
    """Puts a model that no pass changed, and its weights, beside the engine, without a copy where that can be."""
    weights = model.with_name(f"{model.name}.data")
    for source, link in ((model, target), (weights, target.with_name(weights.name))):
        if source.exists() and not link.exists():
            try:
                link.hardlink_to(source)
            except OSError:  # another file system, or one without links
                shutil.copyfile(source, link)


class TensorRtFamily(Backend):
    """What both have in common.

    The engine is one file. A backend object holds the GPU from its first load on, shared with other loads,
    and alone from its first timing on, until ``release`` or until it is collected.
    """

    bindings: ClassVar[Bindings]
    uses_gpu: ClassVar[bool] = True
    tuner_knobs: ClassVar[str] = "compiler"
    int8_convolutions: ClassVar[bool] = True

    def __init__(self, compute_capability: str = "") -> None:
        """Imports nothing yet: bindings are loaded by the first build or load.

        Args:
            compute_capability: of the GPU to build for, such as ``SM89``; empty for the one here.
        """
        capability = parse_capability(compute_capability) if compute_capability else gpu_facts().capability
        self._passes = _passes(
            Quantization(int8_convolutions=self.int8_convolutions, fp8_refused=fp8_refused(capability))
        )
        self._engines: dict[Path, Any] = {}
        self._lock = GpuLock(gpu_facts().uuid or "gpu0")

    def __del__(self) -> None:
        """Lets other processes have the GPU."""
        with contextlib.suppress(AttributeError):
            self.release()

    def release(self) -> None:
        """Lets other processes have the GPU."""
        self._lock.release()

    def report_waits(self, waiting: Callable[[], AbstractContextManager[object]]) -> None:
        """Takes what to enter while another process holds the GPU."""
        self._lock.waiting = waiting

    def environment(self) -> Environment:
        """This GPU, and the versions of what changes a build."""
        return gpu_environment(self.name, self.bindings.installed(), self._tuner_version())

    def device_state(self) -> dict[str, float]:
        """Clocks, temperature, power and throttle reasons by NVML."""
        return device_state()

    def space(self, model: Model, *, allow_numerics: bool = True) -> RouteSpace:
        """Precision, graph form, builder, runtime and compiler knobs that can matter to the model."""
        space = self._space(model)
        return space if allow_numerics else without_numerics(space)

    def build(self, request: BuildRequest) -> Artifact:
        """Rewrites the graph as the route says and builds it."""
        start = time.perf_counter()
        engine = request.folder / "model.engine"
        rewritten = request.folder / "model.onnx"
        try:
            if not run_passes(request.model, rewritten, request.route, self._passes, request.calibration):
                _link(request.model, rewritten)
            with self._compiler(request.route):
                build_engine(self.bindings.load(), rewritten, engine, request.route, self._target())
        except RoutecastError as error:
            raise BuildFailed(one_line(error)) from error
        except Exception as error:  # a library's failure on this graph is this route's failure
            raise BuildFailed(one_line(error)) from error
        return Artifact.of(engine, time.perf_counter() - start)

    def load(self, artifact: Artifact, route: Route, model: Path, *, profiling: bool = False) -> TensorRtExecutable:
        """Loads an engine; a second executable of it shares it and has a context of its own."""
        self._lock.share()
        try:
            require_gpu()
            module, gpu = self.bindings.load(), this_gpu()
            with self._compiler(route):
                engine = self._engine(module, artifact.path)
                context, keep = context_with_cache(module, engine, artifact.path.with_suffix(".cache"))
                if context is None:
                    raise LoadFailed("no execution context could be made for the engine")
                executable = TensorRtExecutable(
                    module, engine, context, gpu, self._lock,
                    graph=route.get("runtime.cuda_graph", "on") == "on", profiling=profiling,
                )  # fmt: skip
                keep()
        except LoadFailed:
            raise
        except RoutecastError as error:
            raise LoadFailed(str(error)) from error
        except Exception as error:  # whatever the bindings or PyCUDA raise
            raise LoadFailed(one_line(error)) from error
        return executable

    def export(self, artifact: Path, route: Route, folder: Path) -> Path:
        """Writes the engine and how trtexec would build it."""
        return export(artifact, route, folder)

    def tuner_file(self, routes: Sequence[Route], base: Route) -> str:
        """A ``--tuneBuildRouteFile`` for trtexec."""
        return route_expression(routes, {knob.name: knob.default for knob in self._listing().knobs}, base)

    def checks(self) -> list[Check]:
        """What is missing, and whether the GPU is one it runs on."""
        return tensorrt_checks(self.bindings)

    def _engine(self, module: Any, path: Path) -> Any:
        if path not in self._engines:
            log = make_logger(module)
            runtime = module.Runtime(log)
            engine = runtime.deserialize_cuda_engine(path.read_bytes())
            if engine is None:
                raise LoadFailed(one_line(RuntimeError(log.errors[-1] if log.errors else "the engine does not load")))
            self._engines[path] = (
                engine,
                runtime,
                log,
            )  # an engine must not outlive its runtime, nor that its logger
        return self._engines[path][0]

    @abstractmethod
    def _listing(self) -> Listing:
        """The compiler's knobs."""

    @abstractmethod
    def _tuner_version(self) -> str:
        """Version of the compiler's knob listing."""

    @abstractmethod
    def _space(self, model: Model) -> RouteSpace:
        """All that can matter to a model."""

    @abstractmethod
    def _target(self) -> Target:
        """What to build for."""

    @contextlib.contextmanager
    def _compiler(self, route: Route) -> Iterator[None]:
        """Around everything that compiles."""
        yield


class TensorRt(TensorRtFamily):
    """TensorRT 11.1 and later: the code of TensorRT-RTX, not run on a GPU by routecast's authors."""

    name: ClassVar[str] = "tensorrt"
    preload: ClassVar[tuple[str, ...]] = (
        "numpy",
        "onnx",
        "tensorrt",
        "routecast.tuner.backends.tensorrt.backend",
    )
    bindings: ClassVar[Bindings] = TENSORRT

    def build(self, request: BuildRequest) -> Artifact:
        """Builds with the GPU for itself: this builder times kernels."""
        self._lock.alone()
        try:
            return super().build(request)
        finally:
            self._lock.release()

    def _listing(self) -> Listing:
        """The installed compiler's own listing; the packaged one where TensorRT or its libraries are not installed."""
        try:
            module = self.bindings.load()
        except MissingPackage:
            return snapshot()
        builder = module.Builder(make_logger(module))
        text = builder.create_builder_config().all_build_routes
        return parse_listing(text) if text else snapshot()

    def _tuner_version(self) -> str:
        return self._listing().tuner_version

    def _space(self, model: Model) -> RouteSpace:
        return tensorrt_space(model.graph, self._passes, tensorrt_builder(), self._listing())

    def _target(self) -> Target:
        return Target(official_routes=True)


class TensorRtRtx(TensorRtFamily):
    """TensorRT-RTX: engines are built ahead of time, without a GPU, and compiled when they are loaded."""

    name: ClassVar[str] = "tensorrt-rtx"
    preload: ClassVar[tuple[str, ...]] = (
        "numpy", "onnx", "tensorrt_rtx_bindings", "routecast.tuner.backends.tensorrt.backend",
    )  # fmt: skip
    bindings: ClassVar[Bindings] = TENSORRT_RTX
    portable_builds: ClassVar[bool] = True
    compiles_at_load: ClassVar[frozenset[str]] = frozenset({"compiler"})
    int8_convolutions: ClassVar[bool] = False  # 1.6.1 fails to build any network that holds one

    def __init__(self, compute_capability: str = "") -> None:
        """Takes what to build for, such as ``SM89``; by default an engine that any supported GPU can load."""
        super().__init__(compute_capability)
        self._capability = compute_capability

    def _listing(self) -> Listing:
        return snapshot()

    def _tuner_version(self) -> str:
        return self._listing().tuner_version if opted_in() else ""

    def _space(self, model: Model) -> RouteSpace:
        listing = self._listing() if opted_in() else None
        why_not = f"experimental on TensorRT-RTX, set {OPT_IN}=1 to try them: {REASON}"
        return tensorrt_space(model.graph, self._passes, rtx_builder(), listing, why_not, prefix="experimental: ")

    def _target(self) -> Target:
        return Target(official_routes=False, compute_capability=self._capability)

    @contextlib.contextmanager
    def _compiler(self, route: Route) -> Iterator[None]:
        with compiler_environment(route):
            yield
