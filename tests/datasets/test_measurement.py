"""Tests of measurements and environments."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routecast.datasets.environment import Environment
from routecast.datasets.measurement import LocalTime, Measurement, Purpose, Status
from routecast.datasets.route import Route

texts = st.text(max_size=20)
words = st.text("abcxyz._0123456789", min_size=1, max_size=12)
times = st.floats(0, 1e6)
maybe = st.none() | times
layers = st.builds(LocalTime, name=texts, op=texts, ms=times, node=st.integers(-1, 1000))
measurements = st.builds(
    Measurement,
    fingerprint=words,
    route=st.builds(Route, st.dictionaries(words, words, max_size=4)),
    environment=words,
    status=st.sampled_from(Status),
    model=texts,
    family=texts,
    purpose=st.sampled_from(Purpose),
    latency_ms=maybe,
    default_ms=maybe,
    ratio=maybe,
    ratio_low=maybe,
    ratio_high=maybe,
    blocks_ms=st.lists(times, max_size=5).map(tuple),
    default_blocks_ms=st.lists(times, max_size=5).map(tuple),
    accuracy=st.dictionaries(words, st.floats(allow_nan=False), max_size=5),
    build_seconds=maybe,
    load_seconds=maybe,
    engine_bytes=st.none() | st.integers(0, 2**48),
    engine_hash=words,
    peak_bytes=st.none() | st.integers(0, 2**48),
    local_profile=st.lists(layers, max_size=5).map(tuple),
    message=texts,
    run=texts,
)


@given(measurements)
def test_json_round_trips(measurement: Measurement) -> None:
    assert Measurement.from_json(json.loads(json.dumps(measurement.to_json()))) == measurement


def test_json_of_a_later_version_can_be_read() -> None:
    measurement = Measurement("f", Route(), "e", Status.OK)
    assert Measurement.from_json({**measurement.to_json(), "colour": "red"}) == measurement


def test_accuracy_that_is_no_number_survives() -> None:
    measurement = Measurement("f", Route(), "e", Status.INACCURATE, accuracy={"l1": math.nan, "l0": math.inf})
    again = Measurement.from_json(json.loads(json.dumps(measurement.to_json())))
    assert math.isnan(again.accuracy["l1"])
    assert again.accuracy["l0"] == math.inf


def test_derived_values() -> None:
    measurement = Measurement(
        "f",
        Route(),
        "e",
        Status.OK,
        ratio=0.5,
        local_profile=(LocalTime("a", "Conv", 1.0), LocalTime("b", "Relu", 0.5)),
    )
    assert measurement.log_ratio == pytest.approx(math.log(0.5))
    assert measurement.local_sum_ms == 1.5
    assert measurement.ok
    assert replace(measurement, local_profile=()).local_sum_ms is None


def test_log_ratio_of_what_was_not_timed_says_why() -> None:
    with pytest.raises(ValueError, match="a=1 has no ratio: its status is build_failed"):
        _ = Measurement("f", Route({"a": "1"}), "e", Status.BUILD_FAILED).log_ratio


def test_two_measurements_have_two_identities() -> None:
    first, second = (Measurement("f", Route(), "e", Status.OK) for _ in range(2))
    assert first.identity != second.identity


@given(st.dictionaries(words, times), st.dictionaries(words, words))
def test_environment_round_trips_and_numbers_are_no_part_of_its_identity(
    numbers: dict[str, float], versions: dict[str, str]
) -> None:
    environment = Environment("onnxruntime", "1", "cpu", versions=versions, numbers=numbers)
    assert Environment.from_json(json.loads(json.dumps(environment.to_json()))) == environment
    assert replace(environment, numbers={}).identity == environment.identity
    assert replace(environment, driver="other").identity != environment.identity
