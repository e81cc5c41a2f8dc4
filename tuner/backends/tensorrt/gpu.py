"""The GPU through PyCUDA: context, stream, memory and events; graph capture through cuda-bindings."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

from routecast.datasets.errors import MissingPackage
from routecast.tuner.backends.base import LoadFailed, one_line
from routecast.tuner.backends.tensorrt.environment import gpu_facts, installed


class Gpu:
    """The primary context of a GPU, current in this process, and one stream."""

    def __init__(self, index: int = 0) -> None:
        """Makes the context.

        Raises:
            MissingPackage: PyCUDA or cuda-bindings is not installed.
            LoadFailed: there is no GPU, or its driver does not answer.
        """
        self.driver = _driver()
        self.runtime = _runtime()
        try:
            self.driver.init()
            self._context = self.driver.Device(index).retain_primary_context()
            self._context.push()
        except self.driver.Error as error:
            raise LoadFailed(f"no usable GPU {index}: {error}; run `routecast doctor`") from error
        self.stream = self.driver.Stream()
        # A context that is current when Python exits makes PyCUDA abort the process.
        atexit.register(self._context.pop)

    @property
    def handle(self) -> int:
        """The stream as the CUDA libraries take it."""
        return int(self.stream.handle)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Records what ``work`` puts on the stream and returns what replays it.

        Raises:
            LoadFailed: the work cannot be captured.
        """
        cuda = self.runtime
        stream = cuda.cudaStream_t(self.handle)
        self._done(cuda.cudaStreamBeginCapture(stream, cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal))
        try:
            work()
        finally:
            ended = cuda.cudaStreamEndCapture(stream)
        graph = self._done(ended)
        replayed = self._done(cuda.cudaGraphInstantiate(graph, 0))

        def replay() -> None:
            cuda.cudaGraphLaunch(replayed, stream)

        return replay

    def _done(self, result: tuple[Any, ...]) -> Any:
        if int(result[0]) != 0:
            raise LoadFailed(f"the network cannot be captured in a CUDA graph ({result[0]}): runtime.cuda_graph=off")
        return result[1] if len(result) > 1 else None

    def milliseconds(self, work: Callable[[], None], repeats: int) -> float:
        """Time of one of ``repeats`` back-to-back calls of ``work``, by events around all of them, in ms."""
        start, end = self.driver.Event(), self.driver.Event()
        start.record(self.stream)
        for _ in range(repeats):
            work()
        end.record(self.stream)
        end.synchronize()
        return float(start.time_till(end)) / repeats


def require_gpu() -> None:
    """Says at once, where NVML can tell, that there is no GPU.

    Raises:
        LoadFailed: there is none.
    """
    if installed("nvidia-ml-py") and not gpu_facts().name:
        raise LoadFailed(
            "there is no NVIDIA GPU here that NVML can see: engines can be built here, not run; "
            "measure on a machine with a GPU and its driver"
        )


def this_gpu() -> Gpu:
    """The GPU as this process sees it; a forked child makes its own context."""
    return _gpu(os.getpid())


@cache
def _gpu(process: int) -> Gpu:
    return Gpu()


def _driver() -> Any:
    try:
        import pycuda.driver
    except ImportError as error:
        if find_spec("pycuda") is not None:  # it is there, and a library that it needs is not
            raise LoadFailed(f"PyCUDA does not load: {one_line(error)}; run `routecast doctor`") from error
        raise MissingPackage("pycuda", "running TensorRT engines", "tensorrt-rtx") from error
    return pycuda.driver


def _runtime() -> Any:
    try:
        from cuda.bindings import runtime
    except ImportError as error:
        raise MissingPackage("cuda-bindings", "running TensorRT engines", "tensorrt-rtx") from error
    return runtime
