"""The two sets of Python bindings, and every name of theirs that this package uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from routecast.datasets.errors import MissingPackage

BUILD_NAMES: Mapping[str, tuple[str, ...]] = {
    "Builder": ("create_network", "create_builder_config", "build_serialized_network"),
    "OnnxParser": ("parse_from_file", "num_errors", "get_error"),
    "ParserError": ("desc", "node_name", "node_operator"),
    "IBuilderConfig": ("set_flag", "clear_flag", "profiling_verbosity", "build_route", "all_build_routes"),
    "BuilderFlag": ("TF32",),
    "ProfilingVerbosity": ("DETAILED",),
    "INetworkDefinition": ("num_layers", "get_layer"),
    "LayerType": ("ATTENTION_OUTPUT",),
    "ILayer": ("type",),
    "IAttentionOutputLayer": ("attention",),
    "IAttention": ("decomposable",),
    "ILogger": ("log", "Severity"),
    "IHostMemory": (),
}
RUN_NAMES: Mapping[str, tuple[str, ...]] = {
    "Runtime": ("deserialize_cuda_engine",),
    "ICudaEngine": (
        "create_execution_context", "create_engine_inspector", "create_runtime_config", "get_tensor_dtype",
        "get_tensor_mode", "get_tensor_name", "get_tensor_shape", "num_io_tensors",
    ),
    "IExecutionContext": ("execute_async_v3", "profiler", "set_tensor_address"),
    "EngineInspector": ("get_engine_information",),
    "LayerInformationFormat": ("JSON",),
    "IProfiler": ("report_layer_time",),
    "TensorIOMode": ("INPUT",),
}  # fmt: skip
TENSORRT_NAMES: Mapping[str, tuple[str, ...]] = {
    "IBuilderConfig": (
        "builder_optimization_level", "max_aux_streams", "tiling_optimization_level", "max_num_tactics",
    ),
    "TilingOptimizationLevel": ("NONE", "FAST", "MODERATE", "FULL"),
}  # fmt: skip
RTX_NAMES: Mapping[str, tuple[str, ...]] = {
    "IBuilderConfig": ("num_compute_capabilities", "set_compute_capability"),
    "ComputeCapability": ("SM89",),
    "IRuntimeConfig": (
        "create_runtime_cache", "set_runtime_cache", "dynamic_shapes_kernel_specialization_strategy",
    ),
    "IRuntimeCache": ("serialize", "deserialize"),
    "DynamicShapesKernelSpecializationStrategy": ("EAGER",),
}  # fmt: skip


@dataclass(frozen=True)
class Bindings:
    """One set of bindings.

    Attributes:
        backend: name of the backend that uses it; also the name of routecast's extra that installs it.
        module: what is imported.
        packages: distributions that hold it, the first one for its version.
        names: what is used of it only, besides what is used of both.
    """

    backend: str
    module: str
    packages: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]]

    def load(self) -> Any:
        """The module.

        Raises:
            MissingPackage: it is not installed, or its libraries are not.
        """
        return _import(self.module, self.backend, self.packages[0])

    def installed(self) -> str:
        """Version of the installed bindings, empty when there are none; imports nothing."""
        for package in self.packages:
            try:
                return version(package)
            except PackageNotFoundError:
                continue
        return ""

    def used_names(self) -> dict[str, tuple[str, ...]]:
        """Attributes that are used, by class."""
        used: dict[str, tuple[str, ...]] = {}
        for names in (BUILD_NAMES, RUN_NAMES, self.names):
            for owner, attributes in names.items():
                used[owner] = (*used.get(owner, ()), *attributes)
        return used

    def missing_names(self, module: Any) -> list[str]:
        """Names that are used and that ``module`` lacks."""
        missing = []
        for owner, attributes in self.used_names().items():
            found = getattr(module, owner, None)
            missing += [f"{owner}.{name}" for name in attributes if not hasattr(found, name)]
            if found is None and not attributes:
                missing.append(owner)
        return missing


@cache
def _import(module: str, backend: str, package: str) -> Any:
    try:
        return import_module(module)
    except (ImportError, OSError) as error:
        raise MissingPackage(package, f"the backend {backend}", backend) from error


TENSORRT = Bindings(
    "tensorrt",
    "tensorrt",
    ("tensorrt-cu13-bindings", "tensorrt-cu13", "tensorrt-cu12-bindings", "tensorrt"),
    TENSORRT_NAMES,
)
TENSORRT_RTX = Bindings("tensorrt-rtx", "tensorrt_rtx_bindings", ("tensorrt-rtx-cu13-bindings",), RTX_NAMES)
