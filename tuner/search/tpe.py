"""Optuna's tree-structured Parzen estimator over the knobs of a route space."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from routecast.datasets.errors import MissingPackage
from routecast.datasets.measurement import Measurement
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.search.base import Strategy

if TYPE_CHECKING:
    import optuna

# What a route that failed counts as: TPE only ranks values, so any that is worse than a real ratio will do.
_FAILED = math.log(100.0)
# Optuna draws at random until this many trials are known. Its own default (10) would make a tune of 8 builds
# random.
_STARTUP_TRIALS = 4
# TPE may propose the same route again and again; after this many draws per route asked for, chance takes
# over.
_DRAWS_PER_ROUTE = 10


class TpeSearch(Strategy):
    """Minimises the log ratio with Optuna's TPE sampler (Bergstra et al., 2011), by ask and tell.

    Each knob is a categorical parameter, suggested only while its requirements are met. The default route is
    told as the first trial, with log ratio 0.
    """

    name = "tpe"

    def __init__(self, space: RouteSpace, *, seed: int = 0, candidates: Iterable[Route] | None = None) -> None:
        """Creates an in-memory study.

        Raises:
            MissingPackage: Optuna is not installed.
        """
        super().__init__(space, seed=seed, candidates=candidates)
        try:
            import optuna
        except ImportError as error:
            raise MissingPackage("optuna", "the strategy tpe", "optuna") from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._order = _requirements_first(space)
        self._trials: dict[Route, optuna.Trial] = {}
        sampler = optuna.samplers.TPESampler(n_startup_trials=_STARTUP_TRIALS, seed=seed)
        self._study = optuna.create_study(sampler=sampler)
        self._add(Route(), 0.0)

    def _propose(self, count: int) -> Iterator[Route]:
        import optuna

        for _ in range(_DRAWS_PER_ROUTE * count):
            trial = self._study.ask()
            route = self._suggest(trial)
            if not self._is_new(route):
                self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
                continue
            self._trials[route] = trial
            yield route
        yield from self._random(count)

    def _learn(self, measurements: Sequence[Measurement]) -> None:
        for measurement in measurements:
            value = measurement.log_ratio if measurement.ok and measurement.ratio is not None else _FAILED
            trial = self._trials.pop(measurement.route, None)
            if trial is None:
                self._add(measurement.route, value)
            else:
                self._study.tell(trial, value)

    def _suggest(self, trial: optuna.Trial) -> Route:
        values = self._assign(lambda knob: str(trial.suggest_categorical(knob.name, knob.values)))
        return self.space.canonical(Route(values))

    def _add(self, route: Route, value: float) -> None:
        """Adds a measurement that no trial of this study asked for."""
        import optuna

        params = self._assign(lambda knob: self.space.value(route, knob.name))
        categories: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.CategoricalDistribution(self.space.by_name[name].values) for name in params
        }
        self._study.add_trial(optuna.trial.create_trial(params=params, distributions=categories, value=value))

    def _assign(self, choose: Callable[[Knob], str]) -> dict[str, str]:
        """The value of every knob that is active under the values chosen before it."""
        values: dict[str, str] = {}
        for knob in self._order:
            changed = Route({**values, knob.name: knob.alternatives[0]})
            if knob.name in self.space.canonical(changed):
                values[knob.name] = choose(knob)
        return values


def _requirements_first(space: RouteSpace) -> list[Knob]:
    """The knobs that have a choice, each after those that it requires."""
    requirements = {knob.name: [name for name in knob.requires if name in space.by_name] for knob in space.knobs}
    ordered = [space.by_name[name] for name in TopologicalSorter(requirements).static_order()]
    return [knob for knob in ordered if knob.alternatives]
