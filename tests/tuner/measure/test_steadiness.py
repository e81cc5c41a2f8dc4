"""Timings made while the machine was not as usual are told by the default's own latency."""

import pytest

from routecast.tuner.measure.steadiness import UsualLatency


def told(latencies):
    usual, found = UsualLatency(), []
    for latency in latencies:
        found.append(usual.exceeded(latency))
        usual.add(latency)
    return found


def test_a_second_mode_is_told_from_noise():
    *steady, slow, after = told([0.5003, 0.4972, 0.5018, 0.5058, 0.4985, 0.5292, 0.5001])
    assert steady == [""] * 5
    assert slow == "the default route took 0.5292 ms, usually 0.5003 ms"
    assert after == ""


def test_nothing_is_usual_before_there_are_two():
    assert told([0.5, 0.53]) == ["", ""]
    assert told([0.5, 0.5, 0.53])[-1]


@pytest.mark.parametrize("latencies", [[2.1, 4.0, 2.6, 3.3, 4.2, 2.2], [1.0, 1.03, 0.98, 1.05, 0.97, 1.08]])
def test_where_the_default_wanders_nothing_is_odd(latencies):
    assert told(latencies)[2:] == [""] * 4


def test_a_faster_state_is_no_reason_to_time_again():
    assert told([1.0, 1.0, 1.0, 0.95, 0.95]) == [""] * 5


def test_a_state_that_lasts_becomes_usual():
    assert [bool(slow) for slow in told([1.0] * 3 + [1.06] * 9)[3:]] == [True] * 3 + [False] * 6
