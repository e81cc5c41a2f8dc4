from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routecast.datasets.errors import UsageError
from routecast.tuner.cli.options import parse_ranges, parse_shapes
from routecast.tuner.cli.output import print_json

NAMES = st.text(st.characters(codec="utf-8", exclude_characters=",", exclude_categories=("Cc", "Zs", "Cs")), min_size=1)


@given(st.dictionaries(NAMES, st.lists(st.integers(1, 10**6), max_size=6).map(tuple), max_size=4))
def test_shapes_survive_their_text_form(shapes: dict[str, tuple[int, ...]]) -> None:
    texts = [f"{name}:{'x'.join(map(str, sizes))}" for name, sizes in shapes.items()]
    assert parse_shapes(texts) == {name.strip(): sizes for name, sizes in shapes.items()}


def test_several_shapes_in_one_text() -> None:
    assert parse_shapes(["x:1x3x224x224, y:4"]) == {"x": (1, 3, 224, 224), "y": (4,)}
    assert parse_shapes(None) == {}


@pytest.mark.parametrize("text", ["x", "x:1xa", ":1", "x:0", "x:-1", "x:1x", "x:1.5", "", "x:²"])
def test_malformed_shapes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--shapes takes"):
        parse_shapes([text])


def test_an_input_shaped_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="twice"):
        parse_shapes(["x:1", "x:2"])


@given(NAMES, st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ranges_survive_their_text_form(name: str, low: float, width: float) -> None:
    assert parse_ranges([f"{name}:{low}:{low + width}"]) == {name: (low, low + width)}


@pytest.mark.parametrize("text", ["x", "x:1", "x:a:b", ":0:1", "x:1:1", "x:2:1", "x:nan:1", "x:0:inf"])
def test_malformed_ranges_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--range"):
        parse_ranges([text])


def test_numbers_that_json_lacks_become_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [math.nan, (math.inf, 1.5)]})
    assert "".join(capsys.readouterr().out.split()) == '{"a":[null,[null,1.5]]}'
