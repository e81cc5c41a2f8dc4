"""The knobs of an ONNX Runtime session, and those that can matter to a graph."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass

from routecast.datasets.graph import Graph
from routecast.datasets.route import Knob, RouteSpace
from routecast.tuner.backends.onnxruntime.optimizers import OPTIMIZERS
from routecast.tuner.patterns import GraphFacts, cores

_ON = ("on", "off")
_STATIC = {"precision.policy": ("static_int8",)}


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


def session_space(graph: Graph, machine: Machine) -> RouteSpace:
    """Knobs that act when a session is loaded: session options and single optimisers."""
    facts = GraphFacts(graph)
    levels = _levels(facts)
    knobs: list[Knob] = [
        Knob(
            "session.graph_optimization_level", levels, "all", help="how far ONNX Runtime optimises the graph itself"
        )
    ]
    left_out: dict[str, str] = {}
    _add(knobs, left_out, _threading(machine, facts))
    knobs += _memory()
    _add(knobs, left_out, _numeric(facts, machine))
    for optimizer in OPTIMIZERS:
        if not optimizer.applies(facts):
            left_out[optimizer.knob_name] = f"the graph lacks what it acts on: {optimizer.needs}"
        elif not set(optimizer.levels) & set(levels):
            left_out[optimizer.knob_name] = "it runs only at graph optimisation levels that change nothing here"
        else:
            knobs.append(optimizer.knob(levels))
    return RouteSpace(tuple(knobs), left_out)


_Choices = list[tuple[Knob | None, str, str]]
"""A knob, or None with the name of a knob left out and the reason."""


def _add(knobs: list[Knob], left_out: dict[str, str], choices: _Choices) -> None:
    for knob, name, reason in choices:
        if knob is None:
            left_out[name] = reason
        else:
            knobs.append(knob)


def _levels(facts: GraphFacts) -> tuple[str, ...]:
    # On a processor, "all" adds to "layout" only the handling of float16 weights; and both add to "extended" only the
    # layouts of convolutions and poolings.
    levels = ["all"]
    if any(tensor.dtype == "float16" for tensor in facts.graph.tensors):
        levels.append("layout")
    if facts.has("Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"):
        levels.append("extended")
    return (*levels, "basic", "disabled")


def thread_counts(cores: int) -> tuple[str, ...]:
    """Powers of two up to the number of cores, and that number."""
    counts = {cores, *(2**power for power in range(cores.bit_length()) if 2**power <= cores)}
    return tuple(str(count) for count in sorted(counts))


def _threading(machine: Machine, facts: GraphFacts) -> _Choices:
    names = ("session.allow_spinning", "session.dynamic_block_base")
    counts = thread_counts(machine.cores)
    # "default" leaves the number to ONNX Runtime, which then also pins each thread to a core.
    choices: _Choices = [
        (
            Knob(
                "session.intra_op_threads", ("default", *counts), "default",
                help="threads that share the work of one operator; default: one pinned to each physical core",
            ),
            "", "",
        )
    ]  # fmt: skip
    many = ("default", *(count for count in counts if count != "1"))
    if machine.cores == 1:
        choices += [(None, name, "this process may use one core only, so nothing is shared") for name in names]
    else:
        needs = {"session.intra_op_threads": many}
        choices += [
            (
                Knob(
                    names[0], ("on", "within_run", "off"), "on", requires=needs,
                    help="whether idle threads spin, waiting for work: also between inferences, within one, or never",
                ),
                "", "",
            ),
            (
                Knob(
                    names[1], ("0", "2", "4", "8", "16"), "0",
                    help="split work into blocks that shrink by this base, so that no thread ends late; 0: equal blocks",
                    requires=needs,
                ),
                "", "",
            ),
        ]  # fmt: skip
    return choices + _parallelism(machine, facts)


def _parallelism(machine: Machine, facts: GraphFacts) -> _Choices:
    mode, threads = "session.execution_mode", "session.inter_op_threads"
    reason = ""
    if not facts.has_branches:
        reason = "the operators form a chain, so no two can run at the same time"
    elif machine.cores == 1:
        reason = "this process may use one core only, so no two operators can run at the same time"
    if reason:
        return [(None, mode, reason), (None, threads, reason)]
    counts = tuple(count for count in thread_counts(machine.cores) if count != "1")
    return [
        (Knob(mode, ("sequential", "parallel"), "sequential", help="whether independent operators run together"), "", ""),
        (
            Knob(
                threads, ("default", *counts), "default", help="how many independent operators run together",
                requires={mode: ("parallel",)},
            ),
            "", "",
        ),
    ]  # fmt: skip


def _memory() -> list[Knob]:
    return [
        Knob("session.memory_pattern", _ON, "on", help="plan the memory of an inference ahead, in one block"),
        Knob("session.cpu_arena", _ON, "on", help="keep freed memory in an arena instead of returning it"),
        Knob("session.memory_reuse", _ON, "on", help="let an operator write over memory that is no longer needed"),
    ]


def _numeric(facts: GraphFacts, machine: Machine) -> _Choices:
    off, choices = ("off", "on"), []
    if facts.has("Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "RNN", "Attention"):
        help_text = "rearrange weights for the matrix kernels when the model is loaded"
        choices.append((Knob("session.prepacking", _ON, "on", help=help_text), "", ""))
    else:
        choices.append((None, "session.prepacking", "the graph has no operator whose weights are prepacked"))
    if any(tensor.dtype in ("float32", "float64") for tensor in facts.graph.tensors):
        help_text = "treat denormal numbers as zero"
        choices.append((Knob("session.denormal_as_zero", off, "off", help=help_text, changes_numerics=True), "", ""))
    else:
        choices.append((None, "session.denormal_as_zero", "the graph computes no floating point numbers"))
    if facts.has("Gelu", "Erf", "com.microsoft::Gelu", "com.microsoft::BiasGelu"):
        choices.append((_gelu_approximation(), "", ""))
    else:
        choices.append((None, "session.gelu_approximation", "the graph has no Gelu"))
    if machine.architecture in ("aarch64", "arm64") and facts.has("MatMul", "Gemm", "Conv"):
        help_text = "multiply matrices in bfloat16"
        choices.append((Knob("session.gemm_bfloat16", off, "off", help=help_text, changes_numerics=True), "", ""))
    else:
        choices.append((None, "session.gemm_bfloat16", "it acts on matrix products on ARM64 processors only"))
    return choices


def _gelu_approximation() -> Knob:
    requires: Mapping[str, tuple[str, ...]] = {
        "session.graph_optimization_level": ("all", "layout", "extended"),
    }
    return Knob(
        "session.gelu_approximation", ("off", "on"), "off", help="compute Gelu by its tanh form",
        changes_numerics=True, requires=requires,
    )  # fmt: skip


def quantized_session_knobs() -> tuple[Knob, ...]:
    """Session knobs that act on quantised graphs only."""
    return (
        Knob(
            "session.qdq_cleanup", ("off", "on"), "off", changes_numerics=True, requires=_STATIC,
            help="remove quantise and dequantise pairs that no integer operator uses",
        ),
    )  # fmt: skip
