"""Composing route spaces."""

from __future__ import annotations

from routecast.datasets.route import RouteSpace

_UNWANTED = "it may change results, which was not allowed"


def join_spaces(*spaces: RouteSpace) -> RouteSpace:
    """One space with the knobs of several.

    A knob that requires values of another knob which no space holds, or that the other knob cannot take, cannot act: it
    is left out, with the reason. Values that the other knob cannot take are dropped from the requirement.
    """
    left_out = {name: reason for space in spaces for name, reason in space.left_out.items()}
    values = {knob.name: set(knob.values) for space in spaces for knob in space.knobs}
    kept = []
    for knob in (knob for space in spaces for knob in space.knobs):
        unmet = [name for name, allowed in knob.requires.items() if not values.get(name, set()) & set(allowed)]
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
