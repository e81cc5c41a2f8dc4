"""How far a route's outputs are from the original model's: the metrics of trtexec's tuner, same definitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from routecast.datasets.errors import UsageError

Outputs = Mapping[str, npt.NDArray[np.generic]]
Values = npt.NDArray[np.float64]

ABSOLUTE_TOLERANCE = 1e-5
RELATIVE_TOLERANCE = 1e-5


def l0(output: Values, reference: Values) -> float:
    """Share of elements outside ``atol + rtol * |reference|``, both tolerances 1e-5."""
    tolerance = ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * np.abs(reference)
    return float(np.mean(np.abs(output - reference) > tolerance))


def l1(output: Values, reference: Values) -> float:
    """Mean absolute difference."""
    return float(np.mean(np.abs(output - reference)))


def l2(output: Values, reference: Values) -> float:
    """Mean squared difference."""
    return float(np.mean(np.square(output - reference)))


def linf(output: Values, reference: Values) -> float:
    """Greatest absolute difference."""
    return float(np.max(np.abs(output - reference)))


def cos(output: Values, reference: Values) -> float:
    """One minus the cosine of the angle between the two; 0 when both are all zeros, 1 when one is."""
    norms = float(np.linalg.norm(output)) * float(np.linalg.norm(reference))
    if norms == 0.0:
        return float(np.any(output) or np.any(reference))
    return max(0.0, 1.0 - float(np.dot(output, reference)) / norms)


METRICS: Mapping[str, Callable[[Values, Values], float]] = {"l0": l0, "l1": l1, "l2": l2, "lInf": linf, "cos": cos}


@dataclass(frozen=True)
class AccuracyLimit:
    """The greatest loss a route may have.

    Attributes:
        metric: one of ``METRICS``.
        threshold: greatest loss accepted, on the worst output of the worst input set.
    """

    metric: str = "cos"
    threshold: float = 1e-2

    def __post_init__(self) -> None:
        """Checks the metric's name."""
        if self.metric not in METRICS:
            raise UsageError(f"the accuracy metric is one of {', '.join(METRICS)}, got {self.metric!r}")

    def reason(self, losses: Mapping[str, float]) -> str:
        """Why the losses are too great, in one line; empty when they are not."""
        loss = losses[self.metric]
        if loss <= self.threshold:
            return ""
        return f"{self.metric} loss {loss:.3g} is above the limit {self.threshold:.3g}"


def losses(outputs: Outputs, reference: Outputs) -> dict[str, float]:
    """Every metric, each its worst over the outputs.

    Raises:
        ValueError: an output is missing, has another shape, or holds NaN or infinity; the message says which.
    """
    worst = dict.fromkeys(METRICS, 0.0)
    for name, expected in reference.items():
        values = _flat(name, outputs, expected.shape)
        if values.size == 0:
            continue
        wanted = np.asarray(expected, dtype=np.float64).ravel()
        for metric, function in METRICS.items():
            worst[metric] = max(worst[metric], function(values, wanted))
    return worst


def _flat(name: str, outputs: Outputs, shape: tuple[int, ...]) -> Values:
    if name not in outputs:
        raise ValueError(f"output {name} is missing")
    output = outputs[name]
    if output.shape != shape:
        raise ValueError(f"output {name} has shape {output.shape}, the original model gives {shape}")
    values = np.asarray(output, dtype=np.float64).ravel()
    if not np.all(np.isfinite(values)):
        raise ValueError(f"output {name} holds NaN or infinity")
    return values


def check_reference(outputs: Outputs, input_set: int) -> None:
    """Refuses a reference that no route can be judged by.

    Raises:
        UsageError: an output of the unmodified model holds NaN or infinity, or all its outputs are zeros.
    """
    for name, output in outputs.items():
        if not np.all(np.isfinite(np.asarray(output, dtype=np.float64))):
            raise UsageError(
                f"the unmodified model itself gives NaN or infinity in output {name} (input set {input_set}): "
                "give inputs of a sensible range with --inputs or --range"
            )
    if not any(np.any(output) for output in outputs.values()):
        raise UsageError(
            f"every output of the unmodified model is all zeros (input set {input_set}), so accuracy cannot be "
            "judged: give real inputs with --inputs, or a trained model"
        )
