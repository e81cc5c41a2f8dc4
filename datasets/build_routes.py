"""The compiler's part of a route as TensorRT writes it: ``-kgen:tiling=1 -concat_elim=off``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from routecast.datasets.errors import UsageError
from routecast.datasets.route import Route

GROUP = "compiler."
"""What the names of the compiler's knobs start with in a route."""

_LONGEST = 200
_SETTING = re.compile(r"-([A-Za-z0-9_][A-Za-z0-9_:.+-]*)=([^\s=|\[\]]+)", re.ASCII)


def build_route(route: Route) -> str:
    """The compiler's part of a route as the compiler reads it: ``-kgen:tiling=1 -concat_elim=off``."""
    parts = (f"-{name.removeprefix(GROUP)}={value}" for name, value in route.items() if name.startswith(GROUP))
    return " ".join(parts)


@lru_cache(maxsize=4096)  # a search repeats the same few hundred tokens in every one of its thousands of routes
def _parse_setting(token: str) -> tuple[str, str]:
    match = _SETTING.fullmatch(token) if len(token) <= _LONGEST else None
    if match is None:
        raise UsageError(f"a build route is made of -knob=value tokens, got {token[:60]!r}")
    return match.group(1), match.group(2)


def parse_settings(text: str) -> dict[str, str]:
    """Reads a build route as values by name of knob, without the leading dash.

    Raises:
        UsageError: a token is not ``-knob=value`` or a knob is set twice.
    """
    pairs = [_parse_setting(token) for token in text.split()]
    settings = dict(pairs)
    if len(settings) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise UsageError(f"a build route sets each knob once, got -{twice} twice")
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
    return Route((GROUP + name, value) for name, value in parse_settings(text).items() - defaults.items())
