"""What the zoo says about one network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Network:
    """A network that can be made as an ONNX file on this machine.

    Attributes:
        name: unique name, such as ``resnet18_b1_s128``.
        family: architecture family, the unit in which data is split into training and test parts.
        source: where it comes from: ``onnx`` (test data of the onnx package), ``wheel`` (a trained network
            inside an installed wheel) or ``torch`` (a module of routecast with seeded random weights).
        make: writes the ONNX file into a folder and returns its path; the same file every time on one
            machine (measured statistics may differ in their last bits between processors).
        shapes: the shape to feed, for each input whose shape is dynamic.
        ranges: the range of values for each input; for integer inputs ``[low, high)``.
        held_out: kept out of the shipped history, so that benchmarks tune networks never seen before.
    """

    name: str
    family: str
    source: str
    make: Callable[[Path], Path]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    held_out: bool = False
