"""The route space of a model on TensorRT: precision, graph form, builder, compiler knobs and runtime."""

from __future__ import annotations

from collections.abc import Sequence

from routecast.datasets.graph import Graph
from routecast.datasets.route import Knob, RouteSpace
from routecast.tuner.backends.tensorrt.knobs import Listing, compiler_space
from routecast.tuner.passes.base import GraphPass
from routecast.tuner.patterns import GraphFacts
from routecast.tuner.space import join_spaces

# What other passes offer that ends in operators of ONNX Runtime's own, which TensorRT's parser does not know.
_FOREIGN_VALUES = {"pass.onnxscript": ("fuse",)}
_STATIC = "input shapes are fixed, so there is nothing to specialise"
_SAME_ENGINE = "the engines were byte for byte the same whatever its value"
_FIRST_WITH_FP8 = (8, 9)


def pass_space(graph: Graph, passes: Sequence[GraphPass]) -> RouteSpace:
    """Knobs of the graph passes; one that several passes serve is left out only when none offers it."""
    spaces = [graph_pass.space(graph) for graph_pass in passes]
    knobs = tuple(_native(knob) for space in spaces for knob in space.knobs)
    names = {knob.name for knob in knobs}
    left_out = {name: why for space in spaces for name, why in space.left_out.items() if name not in names}
    return RouteSpace(knobs, left_out)


def _native(knob: Knob) -> Knob:
    foreign = _FOREIGN_VALUES.get(knob.name, ())
    values = tuple(value for value in knob.values if value not in foreign)
    return Knob(knob.name, values, knob.default, knob.help, knob.stage, knob.changes_numerics, knob.requires)


def parse_capability(name: str) -> tuple[int, int]:
    """The compute capability that ``SM89`` or ``SM120`` names."""
    number = int(name.removeprefix("SM"))
    return number // 10, number % 10


def fp8_refused(capability: tuple[int, int]) -> str:
    """Why a GPU has no FP8, empty when it has or is not known."""
    if not any(capability) or capability >= _FIRST_WITH_FP8:
        return ""
    major, minor = capability
    return f"FP8 needs compute capability 8.9 or later, the GPU has {major}.{minor}"


def tensorrt_builder() -> RouteSpace:
    """Builder options of TensorRT 11."""
    return RouteSpace(
        (
            _tf32(),
            Knob(
                "builder.optimization_level",
                ("3", "0", "1", "2", "4", "5"),
                "3",
                "how long to search",
                "build",
            ),
            Knob(
                "builder.tiling",
                ("none", "fast", "moderate", "full"),
                "none",
                "tiling for the L2 cache",
                "build",
            ),
            Knob(
                "builder.aux_streams",
                ("auto", "0", "1", "3", "7"),
                "auto",
                "most streams beside the main one",
                "build",
            ),
            Knob(
                "builder.max_tactics",
                ("auto", "1", "5", "20", "60"),
                "auto",
                "most kernels timed per layer",
                "build",
            ),
        )
    )


def rtx_builder() -> RouteSpace:
    """Builder options of TensorRT-RTX that change anything."""
    same = ("builder.optimization_level", "builder.tiling", "builder.aux_streams", "builder.max_tactics")
    left_out = {**dict.fromkeys(same, _SAME_ENGINE), "runtime.specialization": _STATIC}
    return RouteSpace((_tf32(),), left_out)


def _tf32() -> Knob:
    return Knob(
        "builder.tf32", ("on", "off"), "on", "round the operands of fp32 products to TF32", "build",
        changes_numerics=True, requires={"precision.policy": ("fp32",)},
    )  # fmt: skip


def attention_space(graph: Graph, passes: RouteSpace) -> RouteSpace:
    """Whether an Attention may be taken apart, for models that hold one or routes that make one."""
    name, values = "builder.attention", ("decomposable", "dedicated")
    form = passes.by_name.get("form.attention")
    help_text = "an Attention may be taken apart, or must have a kernel of its own (none has in fp32)"
    if "Attention" in graph.ops:
        return RouteSpace((Knob(name, values, values[0], help_text, "build", requires={"form.attention": ("keep",)}),))
    if form and "raise" in form.values:
        return RouteSpace((Knob(name, values, values[0], help_text, "build", requires={"form.attention": ("raise",)}),))
    return RouteSpace((), {name: "the graph holds no Attention and no pattern of one"})


def runtime_space() -> RouteSpace:
    """Options of the runtime."""
    help_text = "replay the inference as one CUDA graph instead of enqueuing kernel after kernel"
    return RouteSpace((Knob("runtime.cuda_graph", ("on", "off"), "on", help_text, "load"),))


def tensorrt_space(
    graph: Graph,
    passes: Sequence[GraphPass],
    builder: RouteSpace,
    listing: Listing | None,
    why_not: str = "",
    *,
    prefix: str = "",
) -> RouteSpace:
    """Everything together.

    Args:
        graph: the model's.
        passes: the graph passes.
        builder: builder options.
        listing: the compiler's knobs, None when they cannot be set here.
        why_not: the reason then.
        prefix: of the help of compiler knobs.
    """
    facts = GraphFacts(graph)
    compiler = compiler_space(facts, listing, prefix) if listing else RouteSpace((), {"compiler": why_not})
    rewriting = pass_space(graph, passes)
    return join_spaces(rewriting, builder, attention_space(graph, rewriting), runtime_space(), compiler)
