from __future__ import annotations

from routecast.datasets.route import Knob, RouteSpace
from routecast.tuner.space import join_spaces, without_numerics

POLICY = Knob("precision.policy", ("fp32", "int8"), "fp32", changes_numerics=True)
DETAIL = Knob("precision.detail", ("a", "b"), "a", requires={"precision.policy": ("int8",)})
OTHER = Knob("session.other", ("on", "off"), "on")


def test_joined_spaces_keep_knobs_and_reasons():
    space = join_spaces(RouteSpace((POLICY,), {"x": "no x"}), RouteSpace((DETAIL, OTHER), {"y": "no y"}))
    assert space.knobs == (POLICY, DETAIL, OTHER)
    assert space.left_out == {"x": "no x", "y": "no y"}


def test_a_knob_that_can_never_act_is_left_out():
    space = join_spaces(RouteSpace((DETAIL, OTHER)))
    assert space.knobs == (OTHER,)
    assert "precision.policy=int8" in space.left_out["precision.detail"]


def test_a_knob_that_needs_a_missing_value_is_left_out():
    policy = Knob("precision.policy", ("fp32", "bf16"), "fp32")
    assert join_spaces(RouteSpace((policy, DETAIL))).knobs == (policy,)


def test_without_numerics_drops_what_hangs_on_them():
    space = without_numerics(RouteSpace((POLICY, DETAIL, OTHER)))
    assert space.knobs == (OTHER,)
    assert set(space.left_out) == {"precision.policy", "precision.detail"}
