from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from routecast.datasets.measurement import Measurement, Status
from routecast.datasets.route import Route
from routecast.tuner.worth import setting_worth


def _rows(template: Measurement, effects: dict[str, float], count: int, noise: float = 0.0) -> list[Measurement]:
    """Routes that set each knob at random, with the additive effects given."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(count):
        chosen = [name for name in effects if rng.random() < 0.5]
        ratio = math.exp(sum(effects[name] for name in chosen) + noise * rng.normal())
        rows.append(
            replace(
                template,
                route=Route(dict.fromkeys(chosen, "on")),
                ratio=ratio,
                ratio_low=ratio * math.exp(-1.96 * noise),
                ratio_high=ratio * math.exp(1.96 * noise),
            )
        )
    return rows


def test_effects_are_recovered_from_routes_that_change_several_knobs(
    measurements: tuple[Measurement, ...],
) -> None:
    effects = {"a": -0.2, "b": 0.1, "c": 0.0}
    worth = {item.setting: item for item in setting_worth(_rows(measurements[1], effects, 60, 0.01))}
    for name, effect in effects.items():
        item = worth[f"{name}=on"]
        assert math.log(item.ratio) == pytest.approx(effect, abs=0.02)
        assert item.ratio_low <= math.exp(effect) <= item.ratio_high
        assert item.clear == (effect != 0.0)


def test_the_greatest_gain_comes_first(measurements: tuple[Measurement, ...]) -> None:
    worth = setting_worth(_rows(measurements[1], {"a": 0.3, "b": -0.3}, 40, 0.01))
    assert [item.setting for item in worth] == ["b=on", "a=on"]


def test_settings_never_told_apart_share_their_effect_and_are_not_clear(
    measurements: tuple[Measurement, ...],
) -> None:
    row = replace(measurements[1], route=Route.parse("a=on b=on"), ratio=0.8, ratio_low=0.79, ratio_high=0.81)
    one, other = setting_worth([row])
    assert one.ratio == pytest.approx(other.ratio)
    assert one.ratio * other.ratio == pytest.approx(0.8, abs=0.01)
    assert not one.clear


def test_models_that_respond_differently_widen_the_intervals(measurements: tuple[Measurement, ...]) -> None:
    alike = _rows(measurements[1], {"a": -0.2}, 30, 0.005)
    differing = alike + _rows(measurements[1], {"a": 0.2}, 30, 0.005)
    (one,), (other,) = setting_worth(alike), setting_worth(differing)
    assert other.ratio_high - other.ratio_low > 3 * (one.ratio_high - one.ratio_low)


def test_failures_and_the_default_route_do_not_count(measurements: tuple[Measurement, ...]) -> None:
    assert setting_worth([replace(measurements[1], status=Status.INACCURATE), measurements[0]]) == []
