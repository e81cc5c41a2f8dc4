"""The knobs of an ONNX Runtime session, and those that can matter to a graph."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass

from routecast.datasets.graph import Graph
from routecast.datasets.route import Knob, RouteSpace
from routecast.tuner.backends.onnxruntime.optimizers import OPTIMIZERS
from routecast.tuner.patterns import GraphFacts, cores

_ON, _OFF = ("on", "off"), ("off", "on")
_LEVEL, _MODE = "session.graph_optimization_level", "session.execution_mode"
_THREADS, _INTER_THREADS = "session.intra_op_threads", "session.inter_op_threads"
_POOLINGS = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
_PREPACKED = ("Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "RNN", "Attention")
_ONE_CORE = "this process may use one core only"


@dataclass(frozen=True)
class Machine:
    """What of a machine decides which knobs can matter.

    Attributes:
        cores: processor cores that this process may use.
        architecture: as ``platform.machine`` names it.
    """

    cores: int
    architecture: str

    @classmethod
    def here(cls) -> Machine:
        """This machine."""
        return cls(cores(), platform.machine())


@dataclass(frozen=True)
class _LeftOut:
    name: str
    reason: str


_Choices = Iterator[Knob | _LeftOut]


def session_space(graph: Graph, machine: Machine) -> RouteSpace:
    """Knobs that act when a session is loaded: session options and single optimisers."""
    facts = GraphFacts(graph)
    levels = _levels(facts)
    choices = [
        Knob(_LEVEL, levels, "all", "how far ONNX Runtime optimises the graph itself"),
        *_threading(machine),
        *_parallelism(machine, facts),
        *_memory(),
        *_kernels(facts, machine),
        *_optimizers(facts, levels),
    ]
    knobs = tuple(choice for choice in choices if isinstance(choice, Knob))
    left_out = {choice.name: choice.reason for choice in choices if isinstance(choice, _LeftOut)}
    return RouteSpace(knobs, left_out)


def thread_counts(cores: int) -> tuple[str, ...]:
    """Powers of two up to the number of cores, and that number."""
    counts = {cores, *(2**power for power in range(cores.bit_length()))}
    return tuple(str(count) for count in sorted(counts))


def _levels(facts: GraphFacts) -> tuple[str, ...]:
    # On a processor, "all" adds to "layout" only the handling of float16 weights, and both add to "extended"
    # only the layouts of convolutions and poolings.
    levels = ["all"]
    if any(tensor.dtype == "float16" for tensor in facts.graph.tensors):
        levels.append("layout")
    if facts.has("Conv", *_POOLINGS):
        levels.append("extended")
    return (*levels, "basic", "disabled")


def _threading(machine: Machine) -> _Choices:
    counts = thread_counts(machine.cores)
    # "default" leaves the number to ONNX Runtime, which then also pins each thread to a core.
    help_text = "threads that share the work of one operator; default: one pinned to each physical core"
    yield Knob(_THREADS, ("default", *counts), "default", help_text)
    spinning, blocks = "session.allow_spinning", "session.dynamic_block_base"
    if machine.cores == 1:
        yield from (_LeftOut(name, _ONE_CORE) for name in (spinning, blocks))
        return
    several = {_THREADS: ("default", *(count for count in counts if count != "1"))}
    help_text = "whether idle threads spin for work: also between inferences, within them only, or never"
    yield Knob(spinning, ("on", "within_run", "off"), "on", help_text, requires=several)
    help_text = "hand out work in blocks that shrink by this base, so no thread ends late; 0: equal blocks"
    yield Knob(blocks, ("0", "2", "4", "8", "16"), "0", help_text, requires=several)


def _parallelism(machine: Machine, facts: GraphFacts) -> _Choices:
    if machine.cores == 1 or not facts.has_branches:
        reason = _ONE_CORE if machine.cores == 1 else "the operators form a chain, so no two can run together"
        yield from (_LeftOut(name, reason) for name in (_MODE, _INTER_THREADS))
        return
    help_text = "whether operators that do not need each other run together"
    yield Knob(_MODE, ("sequential", "parallel"), "sequential", help_text)
    counts = tuple(count for count in thread_counts(machine.cores) if count != "1")
    help_text = "how many operators run together"
    yield Knob(_INTER_THREADS, ("default", *counts), "default", help_text, requires={_MODE: ("parallel",)})


def _memory() -> _Choices:
    yield Knob("session.memory_pattern", _ON, "on", "plan the memory of an inference ahead, in one block")
    yield Knob("session.cpu_arena", _ON, "on", "keep freed memory in an arena instead of returning it")
    yield Knob("session.memory_reuse", _ON, "on", "let operators write over memory no longer needed")


def _kernels(facts: GraphFacts, machine: Machine) -> _Choices:
    dtypes = {tensor.dtype for tensor in facts.graph.tensors}
    name = "session.prepacking"
    if facts.has(*_PREPACKED):
        yield Knob(name, _ON, "on", "rearrange weights for the matrix kernels when the model is loaded")
    else:
        yield _LeftOut(name, "the graph has no operator whose weights are rearranged")
    name = "session.denormal_as_zero"
    if dtypes & {"float32", "float64"}:
        yield Knob(name, _OFF, "off", "treat denormal numbers as zero", changes_numerics=True)
    else:
        yield _LeftOut(name, "the graph computes no floating point numbers")
    name = "session.gelu_approximation"
    if facts.has("Gelu", "Erf", "com.microsoft::Gelu", "com.microsoft::BiasGelu"):
        requires = {_LEVEL: ("all", "layout", "extended")}
        yield Knob(name, _OFF, "off", "compute Gelu by tanh", changes_numerics=True, requires=requires)
    else:
        yield _LeftOut(name, "the graph has no Gelu")
    name = "session.gemm_bfloat16"
    if machine.architecture in ("aarch64", "arm64") and facts.has("MatMul", "Gemm", "Conv"):
        yield Knob(name, _OFF, "off", "multiply matrices in bfloat16", changes_numerics=True)
    else:
        yield _LeftOut(name, "it acts on matrix products on ARM64 processors only")
    yield Knob(
        "session.qdq_cleanup", _OFF, "off",
        "remove quantise and dequantise pairs that no integer operator uses",
        changes_numerics=True, requires={"precision.policy": ("static_int8",)},
    )  # fmt: skip


def _optimizers(facts: GraphFacts, levels: tuple[str, ...]) -> _Choices:
    for optimizer in OPTIMIZERS:
        if not optimizer.applies(facts):
            yield _LeftOut(optimizer.knob_name, f"the graph lacks what it acts on: {optimizer.needs}")
        elif set(levels).isdisjoint(optimizer.levels):
            yield _LeftOut(optimizer.knob_name, "it runs only at levels that add nothing else to this graph")
        else:
            yield optimizer.knob(levels)
