from __future__ import annotations

import math

import pytest

from routecast.costmodel.repeats import combine, noise
from routecast.datasets.measurement import Measurement, Status
from routecast.datasets.route import Route


def measured(route: str, ratio: float | None, half_width: float = 0.02, status: Status = Status.OK) -> Measurement:
    low, high = (None, None) if ratio is None else (ratio * math.exp(-half_width), ratio * math.exp(half_width))
    return Measurement(
        "f", Route.parse(route), "e", status, ratio=ratio, ratio_low=low, ratio_high=high, build_seconds=2.0
    )


def test_noise_is_read_from_the_interval() -> None:
    assert noise(measured("a=1", 0.9, half_width=0.0392)) == pytest.approx(0.02)
    assert noise(measured("a=1", 0.9, half_width=0.0)) > 0
    assert noise(Measurement("f", Route(), "e", Status.OK, ratio=1.0)) > 0


def test_exact_measurements_count_more() -> None:
    (found,) = combine([measured("a=1", 1.0, half_width=0.2), measured("a=1", 2.0, half_width=0.02)])
    assert found.log_ratio == pytest.approx(math.log(2.0), rel=0.02)
    assert len(found.measurements) == 2


def test_repeating_makes_it_more_certain() -> None:
    once, four = combine([measured("a=1", 1.1)]), combine([measured("a=1", 1.1)] * 4)
    assert four[0].noise == pytest.approx(once[0].noise / 2)


def test_failures_are_shares_and_have_no_ratio() -> None:
    crashed, mixed = combine(
        [
            measured("a=1", None, status=Status.CRASHED),
            measured("b=1", 0.5, status=Status.INACCURATE),
            measured("b=1", 0.5),
        ]
    )
    assert (crashed.failed, crashed.log_ratio) == (1.0, None)
    assert mixed.failed == 0.5
    assert mixed.log_ratio == pytest.approx(math.log(0.5))
    assert mixed.log_build == pytest.approx(math.log(2.0))
