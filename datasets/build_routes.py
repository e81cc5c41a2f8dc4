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


def parse_settings(text: str) -> dict[str, str]:
    """Reads a build route as values by name of knob, without the leading dash.

    Raises:
        UsageError: a token is not ``-knob=value`` or a knob is set twice.
    """
    settings: dict[str, str] = {}
    for token in text.split():
        match = _SETTING.fullmatch(token)
        if match is None:
            raise UsageError(f"a build route is made of -knob=value tokens, got {token[:60]!r}")
        name, value = match.groups()
        if name in settings:
            raise UsageError(f"a build route sets each knob once, got -{name} twice")
        settings[name] = value
    return settings


def parse_build_route(text: str, defaults: Mapping[str, str]) -> Route:
    """Reads a build route; what it sets to the compiler's default is dropped.

    Args:
        text: the tokens, separated by white space.
        defaults: the compiler's default by name of knob, without the leading dash. A setting of a knob whose
            default is not known is kept.

    Raises:
        UsageError: as ``parse_settings``.
    """
    return Route((GROUP + name, value) for name, value in parse_settings(text).items() if defaults.get(name) != value)
