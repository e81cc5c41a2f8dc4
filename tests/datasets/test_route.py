"""Tests of routes and route spaces."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routecast.datasets.errors import UsageError
from routecast.datasets.route import Knob, Route, RouteSpace

visible = st.characters(exclude_categories=("Z", "C"))
names = st.text(visible, min_size=1).filter(lambda text: "=" not in text and not text[0].isspace())
values = st.text(visible, min_size=1)
SPACE = RouteSpace(
    (
        Knob("session.threads", ("1", "2", "4"), "2"),
        Knob("precision.mode", ("float", "int8"), "float", stage="build", changes_numerics=True),
        Knob("precision.per_channel", ("off", "on"), "off", requires={"precision.mode": ("int8",)}),
        Knob("session.spinning", ("on", "off"), "on"),
    ),
    left_out={"attention.fuse": "the model has no attention"},
)


@st.composite
def settings_of_space(draw: st.DrawFn) -> Route:
    """Any assignment of the space's knobs, sensible or not."""
    chosen = draw(st.lists(st.sampled_from(SPACE.knobs), unique_by=lambda knob: knob.name))
    return Route({knob.name: draw(st.sampled_from(knob.values)) for knob in chosen})


@given(st.dictionaries(names, values))
def test_text_form_round_trips(settings: dict[str, str]) -> None:
    route = Route(settings)
    again = Route.parse(str(route))
    assert again == route
    assert hash(again) == hash(route)
    assert dict(again) == settings


@given(st.permutations([("b", "1"), ("a", "2"), ("c", "3")]))
def test_order_does_not_matter(settings: list[tuple[str, str]]) -> None:
    assert str(Route(settings)) == "a=2 b=1 c=3"


@pytest.mark.parametrize("text", ["threads", "=1", "threads=", "a=1 b"])
def test_parse_refuses_what_is_no_setting(text: str) -> None:
    with pytest.raises(UsageError, match="name=value"):
        Route.parse(text)


def test_parse_refuses_a_knob_set_twice() -> None:
    with pytest.raises(UsageError, match="a twice"):
        Route.parse("a=1 a=2")


def test_default_route_has_a_label() -> None:
    assert Route().is_default
    assert Route().label() == "default"
    assert not Route({"a": "1"}).is_default


def test_knob_needs_its_default_among_distinct_values() -> None:
    with pytest.raises(ValueError, match="default must be one of"):
        Knob("a", ("1", "2"), "3")
    with pytest.raises(ValueError, match="distinct"):
        Knob("a", ("1", "1"), "1")


@given(settings_of_space())
def test_canonical_is_idempotent_and_keeps_only_what_acts(route: Route) -> None:
    canonical = SPACE.canonical(route)
    assert SPACE.canonical(canonical) == canonical
    assert set(canonical.items()) <= set(route.items())
    for name, value in canonical.items():
        assert value != SPACE.by_name[name].default
    assert "precision.per_channel" not in canonical or canonical["precision.mode"] == "int8"


def test_canonical_follows_chains_of_requirements() -> None:
    space = RouteSpace(
        (
            Knob("a.x", ("0", "1"), "0", requires={"b.x": ("1",)}),
            Knob("b.x", ("0", "1"), "0", requires={"c.x": ("1",)}),
            Knob("c.x", ("0", "1"), "0"),
        )
    )
    assert space.canonical(Route({"a.x": "1", "b.x": "1"})) == Route()
    assert len(space.canonical(Route({"a.x": "1", "b.x": "1", "c.x": "1"}))) == 3


@pytest.mark.parametrize(
    ("route", "message"),
    [
        ("attention.fuse=on", "the model has no attention"),
        ("no.such=1", "the backend has no such knob"),
        ("session.threads=3", "takes one of 1, 2, 4, got '3'"),
    ],
)
def test_canonical_says_what_is_wrong(route: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        SPACE.canonical(Route.parse(route))


def test_single_changes_leave_out_knobs_that_would_do_nothing() -> None:
    texts = {str(route) for route in SPACE.single_changes()}
    assert texts == {"session.threads=1", "session.threads=4", "precision.mode=int8", "session.spinning=off"}
    around = {str(route) for route in SPACE.single_changes(Route({"precision.mode": "int8"}))}
    assert "precision.mode=int8 precision.per_channel=on" in around
    assert "" in around
    assert "precision.mode=int8" not in around


def test_samples_are_distinct_canonical_and_repeatable() -> None:
    excluded = Route({"session.threads": "1"})
    routes = SPACE.sample(12, np.random.default_rng(3), exclude=[excluded])
    assert len(set(routes)) == 12
    assert all(SPACE.canonical(route) == route for route in routes)
    assert Route() not in routes
    assert excluded not in routes
    assert routes == SPACE.sample(12, np.random.default_rng(3), exclude=[excluded])


def test_sample_returns_what_there_is() -> None:
    everything = SPACE.sample(100, np.random.default_rng(0))
    assert len(everything) == 3 * 3 * 2 - 1
