"""From an ONNX file to a serialised engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routecast.datasets.route import Route
from routecast.tuner.backends.base import BuildFailed, one_line
from routecast.tuner.backends.tensorrt.channel import set_build_route

_TILING = {"none": "NONE", "fast": "FAST", "moderate": "MODERATE", "full": "FULL"}


@dataclass(frozen=True)
class Target:
    """What an engine is built for.

    Attributes:
        official_routes: whether compiler knobs go through ``IBuilderConfig.build_route``.
        compute_capability: such as ``SM89``; empty leaves it to the builder. RTX builds for it without a GPU.
    """

    official_routes: bool
    compute_capability: str = ""


def make_logger(module: Any) -> Any:
    """A logger that keeps errors, in ``errors``, and prints nothing."""

    class Log(module.ILogger):  # type: ignore[misc]
        """Keeps what went wrong."""

        def __init__(self) -> None:
            module.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            """Takes one message."""
            if severity in (module.ILogger.Severity.ERROR, module.ILogger.Severity.INTERNAL_ERROR):
                self.errors.append(message)

    return Log()


def build_engine(module: Any, source: Path, target: Path, route: Route, settings: Target) -> None:
    """Builds ``source`` into ``target``.

    Raises:
        BuildFailed: it cannot be parsed or built; the message names the operator or quotes the builder.
    """
    log = make_logger(module)
    builder = module.Builder(log)
    network = builder.create_network(0)
    parser = module.OnnxParser(network, log)
    if not parser.parse_from_file(str(source)):
        raise BuildFailed(parse_error(parser))
    if route.get("builder.attention", "decomposable") == "decomposable":
        _allow_decomposition(module, network)
    config = builder.create_builder_config()
    config.profiling_verbosity = module.ProfilingVerbosity.DETAILED
    _configure(module, config, route, settings)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        reason = log.errors[-1] if log.errors else "the builder returned nothing and gave no reason"
        raise BuildFailed(one_line(RuntimeError(f"the builder failed: {reason}")))
    target.write_bytes(memoryview(engine))


def _allow_decomposition(module: Any, network: Any) -> None:
    """Lets the compiler take an attention apart where it has no kernel for it, as in fp32."""
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        if layer.type == module.LayerType.ATTENTION_OUTPUT:
            layer.__class__ = module.IAttentionOutputLayer  # the bindings hand out the base class
            layer.attention.decomposable = True


def parse_error(parser: Any) -> str:
    """What a parser could not read, in one line."""
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    if not errors:
        return "the network could not be parsed, and the parser gave no reason"
    error = errors[-1]
    node = error.node_name() or "unnamed"
    return one_line(RuntimeError(f"cannot parse {error.node_operator() or 'operator'} {node}: {error.desc()}"))


def _configure(module: Any, config: Any, route: Route, settings: Target) -> None:
    if route.get("builder.tf32", "on") == "off":
        config.clear_flag(module.BuilderFlag.TF32)
    if level := route.get("builder.optimization_level"):
        config.builder_optimization_level = int(level)
    if streams := route.get("builder.aux_streams"):
        config.max_aux_streams = int(streams)
    if tiling := route.get("builder.tiling"):
        config.tiling_optimization_level = getattr(module.TilingOptimizationLevel, _TILING[tiling])
    if tactics := route.get("builder.max_tactics"):
        config.max_num_tactics = int(tactics)
    if settings.compute_capability:
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(module.ComputeCapability, settings.compute_capability), 0)
    if settings.official_routes:
        set_build_route(config, route)
