"""The compiler's part of a route as TensorRT writes it: ``-kgen:tiling=1 -concat_elim=off``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from routecast.datasets.errors import UsageError
from routecast.datasets.route import Route

GROUP = "compiler."
"""What the names of the compiler's knobs start with in a route."""

_SETTING = re.compile(r"-([A-Za-z0-9_][A-Za-z0-9_:.+-]*)=([^\s=|\[\]]+)", re.ASCII)


def build_route(route: Route) -> str:
    """The compiler's part of a route as the compiler reads it: ``-kgen:tiling=1 -concat_elim=off``."""
    parts = (f"-{name.removeprefix(GROUP)}={value}" for name, value in route.items() if name.startswith(GROUP))
    return " ".join(parts)


def _parse_setting(token: str) -> tuple[str, str]:
    match = _SETTING.fullmatch(token)
    if match is None:
        raise UsageError(f"a build route is made of -knob=value tokens, got {token[:60]!r}")
    return match.group(1), match.group(2)


def parse_settings(text: str) -> dict[str, str]:
    """Reads a build route as values by name of knob, without the leading dash.

    Raises:
        UsageError: a token is not ``-knob=value`` or a knob is set twice.
    """
    settings: dict[str, str] = {}
    for name, value in map(_parse_setting, text.split()):
        if name in settings:
            raise UsageError(f"a build route sets each knob once, got -{name} twice")
        settings[name] = value
    return settings


class BuildRouteReader:
    """Reads build routes; what they set to the compiler's default is dropped.

    A search writes every knob of its expression in each of its thousands of routes, so defaults are told by their whole
    token, and only the others are taken apart.
    """

    def __init__(self, defaults: Mapping[str, str]) -> None:
        """Takes the compiler's default by name of knob, without the leading dash.

        A setting of a knob whose default is not known is kept.
        """
        self._tokens = {name: f"-{name}={value}" for name, value in defaults.items()}
        self._defaults = frozenset(self._tokens.values())

    def read(self, text: str) -> Route:
        """Reads the tokens, separated by white space.

        Raises:
            UsageError: as ``parse_settings``.
        """
        tokens = text.split()
        given = set(tokens)
        changed = dict(map(_parse_setting, given - self._defaults))
        at_default = given & self._defaults
        clash = not at_default.isdisjoint(self._tokens[name] for name in changed if name in self._tokens)
        if clash or len(changed) + len(at_default) < len(tokens):
            parse_settings(text)  # says which knob is set twice
        return Route((GROUP + name, value) for name, value in changed.items())


def parse_build_route(text: str, defaults: Mapping[str, str]) -> Route:
    """Reads one build route, as ``BuildRouteReader`` does."""
    return BuildRouteReader(defaults).read(text)
