"""Whether predictions of what came since a cost model was trained are worse than its predictions at training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from routecast.costmodel.repeats import combine
from routecast.datasets.environment import Environment
from routecast.datasets.measurement import Measurement
from routecast.datasets.records import Records
from routecast.training.promotion import read_out_of_fold, remembered, without_family

if TYPE_CHECKING:
    from routecast.costmodel.base import Array
    from routecast.costmodel.ensemble import Ensemble

LEAST_ROUTES, LEAST_MODELS = 20, 3
"""Of a backend: with fewer, nothing is said of drift."""
_RESAMPLES = 1000
_LEAST_ERROR = 1e-3  # far below the noise of any timing
_LOW, _HIGH = 0.05, 0.95


@dataclass(frozen=True)
class Drift:
    """Errors on new routes of one backend beside those on held-out routes when the cost model was trained.

    The error of a route is |predicted - measured ln(latency / default latency)|. Both sides are out of fold: of a
    family that the cost model was trained on, the member that was trained without it predicts. The interval of the
    ratio is a bootstrap over the new models, since routes of one model err together; the old median is taken as known.

    Attributes:
        backend: of the routes.
        routes, models: how many new ones were timed.
        before, now: median error on the routes held out then, and on the new ones.
        ratio: now / before.
        low, high: its interval, 5 % to either side; NaN with fewer than ``LEAST_ROUTES`` or ``LEAST_MODELS``.
        coverage: share of the new ratios within the interval predicted for them.
        nominal: what that share was meant to be.
    """

    backend: str
    routes: int
    models: int
    before: float
    now: float
    ratio: float
    low: float
    high: float
    coverage: float
    nominal: float

    def beyond(self, limit: float) -> bool:
        """Whether the errors are more than ``limit`` times what they were, with 95 % confidence."""
        return self.low > limit

    def __str__(self) -> str:
        interval = "" if np.isnan(self.low) else f" [{self.low:.2f}, {self.high:.2f}]"
        return (
            f"error of {self.backend} {self.ratio:.2f}{interval} times that at training "
            f"({self.now:.3f} against {self.before:.3f}, {self.routes} routes of {self.models} models, "
            f"{self.coverage:.0%} within their intervals of {self.nominal:.0%})"
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form."""
        return asdict(self)


def drifts(champion: Ensemble, folder: Path, new: Records) -> list[Drift]:
    """Compares errors on new routes with those at training, by backend.

    Backends that the champion never saw, or that it held nothing out of, are left out: there is nothing to compare.

    Args:
        champion: the cost model.
        folder: where it is saved.
        new: measurements it has not learned from, with their graphs, and the environments of these and of its training
            history.
    """
    before = _errors_before(folder, new.environments)
    rows: dict[str, list[_Predicted]] = {}
    members = remembered(folder).members
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for measurement in new.measurements:
        groups.setdefault((measurement.fingerprint, measurement.environment), []).append(measurement)
    for (fingerprint, environment), found in groups.items():
        graph, place = new.graphs.get(fingerprint), new.environments.get(environment)
        if graph is None or place is None or not graph.nodes or place.backend not in before:
            continue
        model = without_family(champion, members, found[0].family)
        timed = [item for item in combine(found) if item.route and item.log_ratio is not None]
        if timed:
            said = model.view(graph, place).predict([item.route for item in timed])
            actual = np.array([item.log_ratio for item in timed], np.float64)
            within = (actual >= np.log(said.ratio_low)) & (actual <= np.log(said.ratio_high))
            rows.setdefault(place.backend, []).append(_Predicted(np.abs(actual - said.log_ratio), within))
    nominal = champion.calibrations.ratio.nominal
    return [_drift(backend, before[backend], found, nominal) for backend, found in sorted(rows.items())]


@dataclass(frozen=True)
class _Predicted:
    """Routes of one new model: errors, and whether each lies within its interval; both of shape (R,)."""

    error: Array
    within: npt.NDArray[np.bool_]


def _errors_before(folder: Path, known: Mapping[str, Environment]) -> dict[str, float]:
    """Median error on the rows held out at training, by backend."""
    environment, truth, predicted = read_out_of_fold(folder, ("environment", "log_ratio", "predicted"))
    error = np.abs(np.array(truth, np.float64) - np.array(predicted, np.float64))
    backend = np.array([known[key].backend if key in known else "" for key in environment], object)
    found = {}
    for name in set(backend) - {""}:
        kept = error[(backend == name) & np.isfinite(error)]
        if len(kept):
            found[name] = max(float(np.median(kept)), _LEAST_ERROR)
    return found


def _drift(backend: str, before: float, found: Sequence[_Predicted], nominal: float) -> Drift:
    errors = [item.error for item in found]
    now, routes = float(np.median(np.concatenate(errors))), sum(map(len, errors))
    low, high = np.nan, np.nan
    if routes >= LEAST_ROUTES and len(errors) >= LEAST_MODELS:
        low, high = _bootstrap(errors) / before
    return Drift(
        backend=backend,
        routes=routes,
        models=len(errors),
        before=before,
        now=now,
        ratio=now / before,
        low=float(low),
        high=float(high),
        coverage=float(np.mean(np.concatenate([item.within for item in found]))),
        nominal=nominal,
    )


def _bootstrap(errors: Sequence[Array]) -> Array:
    """Interval of the median error when models are drawn again, shape (2,)."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(errors), size=(_RESAMPLES, len(errors)))
    medians = [np.median(np.concatenate([errors[index] for index in row])) for row in drawn]
    interval: Array = np.quantile(medians, (_LOW, _HIGH))
    return interval
