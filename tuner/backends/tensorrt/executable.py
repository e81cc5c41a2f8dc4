"""A loaded engine: runs, times and profiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from routecast.datasets.measurement import LocalTime
from routecast.tuner.backends.base import Array, Executable, LoadFailed
from routecast.tuner.backends.tensorrt.gpu import Gpu
from routecast.tuner.backends.tensorrt.lock import GpuLock
from routecast.tuner.backends.tensorrt.profile import LayerNames, make_profiler, median_times


class TensorRtExecutable(Executable):
    """An execution context with its device memory."""

    def __init__(
        self, module: Any, engine: Any, context: Any, gpu: Gpu, lock: GpuLock, *, graph: bool, profiling: bool
    ) -> None:
        """Allocates every input and output and runs once on zeros, which compiles what is compiled lazily.

        Args:
            module: the bindings.
            engine: the engine.
            context: a context of its own.
            gpu: where it runs.
            lock: this process's hold on the GPU.
            graph: whether ``time`` replays a CUDA graph instead of enqueuing.
            profiling: whether ``profile`` will be called.

        Raises:
            LoadFailed: it does not run, or an output's shape depends on the data.
        """
        self._module, self._engine, self._context = module, engine, context
        self._gpu, self._lock, self._graph = gpu, lock, graph
        self._work = self._enqueue
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        self._inputs = [name for name in names if engine.get_tensor_mode(name) == module.TensorIOMode.INPUT]
        self._host = {name: self._zeros(name) for name in names}
        self._device = {name: gpu.driver.mem_alloc(max(1, array.nbytes)) for name, array in self._host.items()}
        for name, memory in self._device.items():
            context.set_tensor_address(name, int(memory))
        self._feed(self._host)
        self._enqueue()
        self._wait()
        self._profiler = make_profiler(module, context) if profiling else None

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One inference, inputs and outputs copied."""
        self._lock.share()
        self._feed(inputs)
        self._enqueue()
        self._wait()
        outputs = {}
        for name, array in self._host.items():
            if name not in self._inputs:
                outputs[name] = np.empty_like(array)
                if array.nbytes:
                    self._gpu.driver.memcpy_dtoh(outputs[name], self._device[name])
        return outputs

    def prepare(self, inputs: Mapping[str, Array]) -> None:
        """Takes the GPU for this process alone, copies the inputs, and captures the graph."""
        self._lock.alone()
        self._feed(inputs)
        self._enqueue()
        self._wait()
        if self._graph and self._profiler is None:
            self._work = self._gpu.capture(self._enqueue)
            self._work()
            self._wait()

    def time(self, repeats: int) -> float:
        """Latency in ms: the time of ``repeats`` back-to-back inferences by CUDA events, by their number."""
        milliseconds = self._gpu.milliseconds(self._work, repeats)
        self._wait()
        return milliseconds

    def profile(self, repeats: int, nodes: Mapping[str, int] | None = None) -> list[LocalTime]:
        """Time of every layer by the engine's own profiler, without a CUDA graph."""
        if self._profiler is None:
            raise ValueError("profile needs an executable loaded with profiling=True")
        names = LayerNames.of(self._module, self._engine, nodes or {})
        self._profiler.runs.clear()
        for _ in range(repeats + 1):
            self._profiler.runs.append([])
            self._enqueue()
            self._wait()
        return median_times(self._profiler.runs[1:], names)

    def close(self) -> None:
        """Frees device memory and context; the engine stays with its backend."""
        for memory in self._device.values():
            memory.free()
        self._device = {}
        self._work = self._enqueue
        self._context = None

    def _zeros(self, name: str) -> Array:
        shape = tuple(self._engine.get_tensor_shape(name))
        if any(size < 0 for size in shape):
            raise LoadFailed(f"the shape of {name} depends on the data, {shape}, which cannot be measured yet")
        return np.zeros(shape, self._module.nptype(self._engine.get_tensor_dtype(name)))

    def _feed(self, inputs: Mapping[str, Array]) -> None:
        for name in self._inputs:
            array = np.ascontiguousarray(inputs[name], dtype=self._host[name].dtype)
            if array.nbytes:
                self._gpu.driver.memcpy_htod(self._device[name], array)

    def _enqueue(self) -> None:
        if not self._context.execute_async_v3(self._gpu.handle):
            raise LoadFailed("the engine refused to run")

    def _wait(self) -> None:
        try:
            self._gpu.stream.synchronize()
        except self._gpu.driver.Error as error:
            raise LoadFailed(f"the engine failed while running: {error}") from error
