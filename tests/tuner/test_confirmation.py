"""Which routes are confirmed, and which of several winners is the winner."""

from types import SimpleNamespace

import numpy as np

from routecast.datasets.measurement import Measurement, Purpose, Status
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.confirmation import Confirmation, shared, simplest

SPACE = RouteSpace(
    (
        Knob("precision.policy", ("fp32", "fp16", "bf16"), "fp32"),
        *(Knob(f"compiler.{name}", ("on", "off"), "on") for name in "abcd"),
    )
)
HALF = SimpleNamespace(
    predict=lambda routes: SimpleNamespace(
        log_ratio=np.array([-0.7 * ("precision.policy" in route) - 0.01 * len(route) for route in routes])
    )
)
"""A view that knows what half precision brings, and credits every setting with a little."""


def route(text: str) -> Route:
    policy, *names = text.split()
    return Route({"precision.policy": policy, **{f"compiler.{name}": "off" for name in names}})


def confirmed(text: str, *ratios: float) -> Confirmation:
    items = [
        Measurement(
            fingerprint="f", route=route(text), environment="e", status=Status.OK, purpose=Purpose.CONFIRM,
            latency_ms=ratio, default_ms=1.0, ratio=ratio, ratio_low=ratio, ratio_high=ratio,
        )
        for ratio in ratios
    ]  # fmt: skip
    return Confirmation(route(text), tuple(items))


def test_what_equally_fast_routes_share_is_left() -> None:
    assert shared(SPACE, HALF, [route("fp16 a b c"), route("fp16 a c d"), route("fp16 a b")]) == route("fp16 a")
    assert shared(SPACE, HALF, [route("fp16 a b")]) == route("fp16 a b")


def test_another_precision_is_no_reason_to_give_up_the_precision() -> None:
    assert shared(SPACE, HALF, [route("fp16 a b"), route("bf16 a b"), route("fp16 a c")]) == route("fp16 a")


def test_routes_that_share_nothing_leave_the_fastest() -> None:
    plain = SimpleNamespace(predict=lambda routes: SimpleNamespace(log_ratio=np.zeros(len(routes))))
    alone = [Route({"compiler.a": "off"}), Route({"compiler.b": "off"})]
    assert shared(SPACE, plain, alone) == alone[0]


def test_one_disturbed_rebuild_does_not_move_the_ratio_but_can_cost_the_win() -> None:
    disturbed = confirmed("fp16 a", 0.300, 0.330, 0.301)
    assert disturbed.ratio == 0.301
    assert (disturbed.low, disturbed.high) == (0.300, 0.330)
    assert disturbed.wins(0.005)
    assert not confirmed("fp16 a", 0.9, 0.999, 0.9).wins(0.005)


def test_of_winners_as_fast_as_each_other_the_simplest_wins() -> None:
    winners = [confirmed("fp16 a b c", 0.500), confirmed("fp16 a", 0.502), confirmed("fp16", 0.51)]
    assert simplest(winners).route == route("fp16 a")
    assert simplest(winners[:1]).route == route("fp16 a b c")
    assert simplest([]).route.is_default
