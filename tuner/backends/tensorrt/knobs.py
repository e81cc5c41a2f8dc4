"""The compiler's knobs: the listing of an installed TensorRT, or the packaged snapshot of one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from routecast.datasets.build_routes import GROUP, build_route
from routecast.datasets.route import Knob, RouteSpace
from routecast.tuner.patterns import GraphFacts

__all__ = ["NEEDS", "CompilerKnob", "Listing", "build_route", "compiler_space", "parse_listing", "snapshot"]


@dataclass(frozen=True)
class CompilerKnob:
    """One knob of the compiler.

    Attributes:
        name: without the leading dash, such as ``kgen:tiling``.
        values: what to try, the default among them.
        default: the compiler's own choice.
        help: one line.
        needs: kind of operator that the graph must hold (a key of ``NEEDS``), empty when any graph will do.
        numerics: whether it may change results.
        unsafe: whether it may give a wrong network; such knobs are never tried.
    """

    name: str
    values: tuple[str, ...]
    default: str
    help: str = ""
    needs: str = ""
    numerics: bool = False
    unsafe: bool = False

    @property
    def knob(self) -> str:
        """Its name in a route."""
        return GROUP + self.name


@dataclass(frozen=True)
class Listing:
    """All knobs of one version of the compiler."""

    tuner_version: str
    knobs: tuple[CompilerKnob, ...]


# What a graph must hold for the knobs of each need to matter: operator types, any of them.
NEEDS: Mapping[str, tuple[str, ...]] = {
    "attention": ("Attention", "Softmax"),
    "conv": ("Conv",),
    "deconv": ("ConvTranspose",),
    "norm": ("InstanceNormalization", "GroupNormalization"),
    "quantize": ("QuantizeLinear", "DynamicQuantizeLinear"),
    "topk": ("TopK",),
    "gelu": ("Gelu", "Erf"),
    "slice": ("Slice", "Concat", "Split"),
    "transpose": ("Transpose",),
    "reduction": (
        "ReduceMean", "ReduceSum", "ReduceMax", "Softmax", "GlobalAveragePool", "LayerNormalization",
        "RMSNormalization", "InstanceNormalization", "GroupNormalization", "ReduceL2",
    ),
    "matmul": ("MatMul", "Gemm", "Einsum"),
    "sigmoid": ("Sigmoid", "HardSigmoid", "LSTM", "GRU"),
    "pow": ("Pow",),
    "div": ("Div",),
    "sub": ("Sub",),
    "pooling": ("GlobalAveragePool",),
    "scatter": ("ScatterND",),
    "random": ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    "grid": ("GridSample",),
    "sequence": ("SequenceConstruct", "SequenceEmpty", "SplitToSequence"),
    "conditional": ("If", "Where"),
}  # fmt: skip


@cache
def snapshot() -> Listing:
    """The packaged listing: TensorRT 11.1's on one GPU, with routecast's own notes on each knob."""
    text = files(__package__).joinpath("knobs.json").read_text(encoding="utf-8")
    data = json.loads(text)
    return Listing(data["tuner_version"], tuple(_packaged(entry) for entry in data["knobs"]))


def _packaged(entry: dict[str, Any]) -> CompilerKnob:
    return CompilerKnob(**{**entry, "values": tuple(entry["values"])})


def parse_listing(text: str) -> Listing:
    """Reads ``IBuilderConfig.all_build_routes``.

    Notes on needs and risk come from the snapshot, by name. A knob that the snapshot does not know may do
    anything, so it counts as one that changes results.

    Raises:
        ValueError: the text is not such a listing.
    """
    data = json.loads(text)
    known = {knob.name: knob for knob in snapshot().knobs}
    knobs = []
    for option in data["tuner_options"]:
        name, default = option["option"].lstrip("-"), str(option["default_value"])
        noted = known.get(name, CompilerKnob(name, (default,), default, needs=_guess(name), numerics=True))
        values = _values(option["allowed_values"], default, noted.values)
        knobs.append(CompilerKnob(name, values, default, noted.help, noted.needs, noted.numerics, noted.unsafe))
    return Listing(str(data["tuner_version"]), tuple(knobs))


def _values(allowed: str, default: str, noted: Iterable[str]) -> tuple[str, ...]:
    """The listed values, or the noted ones where the list is open (``int`` or ``[1|2|...]``)."""
    body = allowed.partition("=")[2]
    match = re.fullmatch(r"\[(.*)\]", body)
    listed = match.group(1).split("|") if match else []
    if not match or "..." in listed:
        listed = [*noted]
    return tuple(dict.fromkeys([default, *listed]))


def _guess(name: str) -> str:
    """What a knob that the snapshot does not know is about, by its name."""
    for word, need in (
        ("mha", "attention"),
        ("deconv", "deconv"),
        ("conv", "conv"),
        ("norm", "norm"),
        ("topk", "topk"),
    ):
        if word in name:
            return need
    return "quantize" if re.search(r"int8|fp8|dynq|quant", name) else ""


def compiler_space(facts: GraphFacts, listing: Listing, help_prefix: str = "") -> RouteSpace:
    """The compiler's knobs that can matter to a graph."""
    knobs, left_out = [], {}
    for each in listing.knobs:
        reason = _reason(each, facts)
        if reason:
            left_out[each.knob] = reason
        else:
            knobs.append(Knob(each.knob, each.values, each.default, help_prefix + each.help, "build", each.numerics))
    return RouteSpace(tuple(knobs), left_out)


def _reason(knob: CompilerKnob, facts: GraphFacts) -> str:
    if knob.unsafe:
        return "it may build a wrong network"
    if len(knob.values) < 2:
        return "nothing but its default is known to try"
    if knob.needs == "quantize" and not facts.has(*NEEDS["quantize"]):
        return "it is about quantised networks: the graph holds no QuantizeLinear"
    if knob.needs and not facts.has(*NEEDS[knob.needs]):
        return f"it is about {knob.needs}: the graph holds none of {', '.join(NEEDS[knob.needs])}"
    if knob.needs == "attention" and not (facts.has("Attention") or facts.follows("Softmax", "MatMul", hops=3)):
        return "it is about attention: no MatMul comes after a Softmax"
    return ""
