"""Composing route spaces."""

from __future__ import annotations

from routecast.datasets.route import RouteSpace

_UNWANTED = "it may change results, which was not allowed"


def join_spaces(*spaces: RouteSpace) -> RouteSpace:
    """One space with the knobs of several.

    A knob that requires another knob which no space holds, or values that it cannot take, cannot act: it is
    left out, with the reason.
    """
    left_out = {name: reason for space in spaces for name, reason in space.left_out.items()}
    knobs = [knob for space in spaces for knob in space.knobs]
    values = {knob.name: frozenset(knob.values) for knob in knobs}
    kept = []
    for knob in knobs:
        needs = knob.requires.items()
        unmet = [name for name, allowed in needs if values.get(name, frozenset()).isdisjoint(allowed)]
        if unmet:
            wants = ", ".join(f"{name}={'|'.join(knob.requires[name])}" for name in unmet)
            left_out[knob.name] = f"it acts only under {wants}, which this model's route space lacks"
        else:
            kept.append(knob)
    return RouteSpace(tuple(kept), left_out)


def without_numerics(space: RouteSpace) -> RouteSpace:
    """The space without the knobs that may change results, and without those that act only under them."""
    kept = tuple(knob for knob in space.knobs if not knob.changes_numerics)
    dropped = {knob.name: _UNWANTED for knob in space.knobs if knob.changes_numerics}
    return join_spaces(RouteSpace(kept, {**space.left_out, **dropped}))
