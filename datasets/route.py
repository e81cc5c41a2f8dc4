"""Knobs, routes and route spaces: the decisions that a build can take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np

from routecast.datasets.errors import UsageError

Stage = Literal["build", "load"]
T = TypeVar("T")


@dataclass(frozen=True)
class Knob:
    """One build decision with a finite list of values.

    Attributes:
        name: dotted name whose first part is the group, such as ``session.intra_op_threads``.
        values: every value it may take, as strings, the default among them.
        default: the value of the default route.
        help: one line for people.
        stage: ``build`` when it changes the artifact, ``load`` when it acts on loading it.
        changes_numerics: whether a value other than the default may change the results.
        requires: the knob is active only while each knob named here has one of the values listed.
    """

    name: str
    values: tuple[str, ...]
    default: str
    help: str = ""
    stage: Stage = "load"
    changes_numerics: bool = False
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks that the default is a value and that values are distinct."""
        if self.default not in self.values or len(set(self.values)) != len(self.values):
            raise ValueError(
                f"knob {self.name}: default must be one of distinct values, got {self.default!r} in {self.values}"
            )

    @property
    def group(self) -> str:
        """The first part of the name."""
        return self.name.split(".", 1)[0]

    @property
    def alternatives(self) -> tuple[str, ...]:
        """The values that are not the default."""
        return tuple(value for value in self.values if value != self.default)


class Route(Mapping[str, str]):
    """An immutable assignment of knobs that differ from their default; the empty route is the default route.

    Its text form is the settings ``name=value``, sorted by name and separated by spaces.
    """

    __slots__ = ("_hash", "_settings")

    def __init__(self, settings: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        """Takes knob names and values; order does not matter."""
        self._settings: dict[str, str] = dict(sorted(dict(settings).items()))
        self._hash = hash(tuple(self._settings.items()))

    @classmethod
    def parse(cls, text: str) -> Route:
        """Reads the text form.

        Raises:
            UsageError: a token is not ``name=value`` or a knob is set twice.
        """
        settings: dict[str, str] = {}
        for token in text.split():
            name, equals, value = token.partition("=")
            if not (name and equals and value):
                raise UsageError(f"a route is made of name=value settings, got {token!r} in {text!r}")
            if name in settings:
                raise UsageError(f"a route sets each knob once, got {name} twice in {text!r}")
            settings[name] = value
        return cls(settings)

    def __getitem__(self, name: str) -> str:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Route) and self._settings == other._settings

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._settings.items())

    def __repr__(self) -> str:
        return f"Route({str(self)!r})"

    @property
    def is_default(self) -> bool:
        """Whether nothing differs from the default."""
        return not self._settings

    def label(self) -> str:
        """The text form, or ``default`` for the default route."""
        return str(self) or "default"


@dataclass(frozen=True)
class RouteSpace:
    """The knobs that can matter to one model on one backend, and why the others were left out.

    Attributes:
        knobs: the knobs, in the order they are shown.
        left_out: reason by knob name, for knobs of the backend that cannot matter here, or by ``name=value``.
    """

    knobs: tuple[Knob, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_name(self) -> dict[str, Knob]:
        """The knobs by name."""
        return {knob.name: knob for knob in self.knobs}

    @cached_property
    def _groups(self) -> dict[str, tuple[Knob, ...]]:
        found: dict[str, list[Knob]] = {}
        for knob in self.knobs:
            if knob.alternatives:
                found.setdefault(knob.group, []).append(knob)
        return {name: tuple(knobs) for name, knobs in found.items()}

    @property
    def size(self) -> int:
        """An upper bound on the number of routes: the product of the numbers of values."""
        return math.prod(len(knob.values) for knob in self.knobs)

    def value(self, route: Route, name: str) -> str:
        """The value of a knob under a route, its default when the route does not set it."""
        return route.get(name, self.by_name[name].default)

    def canonical(self, route: Route) -> Route:
        """Drops settings that do nothing: defaults, and knobs whose requirements are not met.

        Raises:
            UsageError: the route names a knob or value that this space does not have.
        """
        settings: dict[str, str] = {}
        for name, value in route.items():
            knob = self.by_name.get(name)
            if knob is None:
                reason = self.left_out.get(name, "the backend has no such knob")
                raise UsageError(f"knob {name} is not in this model's route space: {reason}")
            if value not in knob.values:
                reason = self.left_out.get(f"{name}={value}", "")
                detail = f": {reason}" if reason else ""
                raise UsageError(f"knob {name} takes one of {', '.join(knob.values)}, got {value!r}{detail}")
            if value != knob.default:
                settings[name] = value
        while True:
            # Dropping a knob may leave the requirements of another one unmet.
            active = {name: value for name, value in settings.items() if self._active(self.by_name[name], settings)}
            if len(active) == len(settings):
                return Route(active)
            settings = active

    def offers(self, route: Route) -> bool:
        """Whether a route is made of knobs and values of this space alone, none of which does nothing."""
        try:
            return self.canonical(route) == route
        except UsageError:
            return False

    def _active(self, knob: Knob, settings: Mapping[str, str]) -> bool:
        return not knob.requires or all(
            settings.get(name, self.by_name[name].default) in allowed
            for name, allowed in knob.requires.items()
            if name in self.by_name
        )

    def single_changes(self, route: Route | None = None) -> list[Route]:
        """Every route that differs from ``route`` (the default route when None) in one knob.

        A knob whose requirements are unmet is left out: changing it would do nothing.
        """
        base = dict(route or Route())
        found: dict[Route, None] = {}
        for knob in self.knobs:
            for value in knob.values:
                found[self.canonical(Route({**base, knob.name: value}))] = None
        found.pop(self.canonical(Route(base)), None)
        return list(found)

    def additions(self, route: Route) -> dict[tuple[str, str], Route]:
        """Every route that has one setting more than ``route``, by that setting."""
        found = {}
        for other in self.single_changes(route):
            if route.items() <= other.items():
                (setting,) = other.items() - route.items()
                found[setting] = other
        return found

    def sample(
        self, count: int, rng: np.random.Generator, changes: tuple[int, int] = (1, 6), exclude: Iterable[Route] = ()
    ) -> list[Route]:
        """Draws distinct random routes, none of them the default route.

        The number of changed knobs is uniform over ``changes``. Each is drawn in turn: first a group of knobs, then a
        knob of it whose requirements are met by what was drawn before, then one of its values other than the default,
        all uniformly. So a group of many knobs that seldom matter does not crowd out a group of few that do.

        Args:
            count: how many; fewer come back when the space holds fewer.
            rng: source of randomness.
            changes: least and greatest number of knobs drawn.
            exclude: routes not to return.
        """
        excluded = {*exclude, Route()}
        found: dict[Route, None] = {}
        for _ in range(50 * count if self._groups else 0):
            if len(found) >= count:
                break
            route = self._draw(rng, changes)
            if route not in excluded:
                found[route] = None
        return list(found)

    def _draw(self, rng: np.random.Generator, changes: tuple[int, int]) -> Route:
        settings: dict[str, str] = {}
        for _ in range(int(rng.integers(changes[0], changes[1] + 1))):
            group = self._groups[_pick(tuple(self._groups), rng)]
            eligible = [knob for knob in group if knob.name not in settings and self._active(knob, settings)]
            if not eligible:
                continue
            knob = _pick(eligible, rng)
            settings[knob.name] = _pick(knob.alternatives, rng)
        return self.canonical(Route(settings))


def _pick(values: Sequence[T], rng: np.random.Generator) -> T:
    return values[int(rng.integers(len(values)))]
