"""Screens: many knobs at once, none that is expected to do harm, and what a search makes of them."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from routecast.datasets.measurement import Measurement, Purpose, Status
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.search import ModelSearch
from routecast.tuner.search.screening import SCREENED, crossed, half, harmless, screens

FP16, BF16 = Route({"precision.policy": "fp16"}), Route({"precision.policy": "bf16"})


def gpu_like(*policies: str) -> RouteSpace:
    """A hundred compiler knobs, and few of everything else, as on TensorRT."""
    return RouteSpace(
        (
            Knob("precision.policy", ("fp32", *policies), "fp32"),
            Knob("precision.keep", ("none", "norm"), "none", requires={"precision.policy": ("fp16", "bf16")}),
            Knob("builder.tf32", ("on", "off"), "on", requires={"precision.policy": ("fp32",)}),
            *(Knob(f"compiler.knob{i}", ("on", "off"), "on") for i in range(100)),
        )
    )


class Wary:
    """A view that expects one knob to fail, one to do harm and one to help, and nothing of the others."""

    warnings = ()

    def __init__(self, failing: str = "compiler.knob7=") -> None:
        self.failing = failing

    def predict(self, routes):
        failure = np.array([0.5 if self.failing in str(route) else 0.01 for route in routes])
        effects = {"compiler.knob8": 0.1, "compiler.knob9": -0.1, "precision.policy": -0.5}
        log_ratio = np.array([sum(effects.get(name, -0.01) for name in route) for route in routes])
        return SimpleNamespace(
            routes=tuple(routes), failure=failure, log_ratio=log_ratio, log_ratio_std=np.full(len(routes), 0.05)
        )

    def adapt(self, measurements):
        return self


def test_settings_that_may_do_harm_are_left_out_and_the_best_come_first():
    found = harmless(gpu_like("fp16"), Wary(), FP16)
    assert found[0] == ("compiler.knob9", "off")
    assert len(found) == 98  # all compiler knobs but one that may fail and one that slows down


@pytest.mark.parametrize("rng", [None, 1])
def test_screens_change_many_knobs_each_and_try_nearly_all(rng):
    space = gpu_like("fp16", "bf16")

    def found(count):
        return screens(space, Wary(), count, None if rng is None else np.random.default_rng(rng))

    assert len(set(found(9))) == 9
    assert Counter(route["precision.policy"] for route in found(8)) == {"fp16": 4, "bf16": 4}
    assert all(len(route) == 1 + SCREENED for route in found(8))
    assert len({name for route in found(9) for name in route}) == 98 + 1
    assert found(9) == found(9)
    assert found(0) == []


def test_what_the_precision_risks_is_not_held_against_settings():
    assert len(harmless(gpu_like("fp16"), Wary("precision"), FP16)) == 99  # all but the one that slows down


def test_the_most_promising_settings_are_tried_first_unless_the_order_is_random():
    assert all("compiler.knob9" in screens(gpu_like("fp16"), Wary(), count)[0] for count in (1, 2, 3))
    random = [screens(gpu_like("fp16"), Wary(), 1, np.random.default_rng(seed))[0] for seed in range(10)]
    assert len(set(random)) == 10


def test_random_screens_go_on_with_settings_that_were_tried_once():
    found = screens(gpu_like("fp16"), Wary(), 16, np.random.default_rng(0))
    tried = Counter(name for route in found for name in route if name != "precision.policy")
    assert set(tried.values()) == {1, 2}
    once = screens(gpu_like("fp16"), Wary(), 16)
    assert sum(map(len, once)) == 98 + len(once)  # the most promising first: each once, beside precision


@pytest.mark.parametrize(
    ("policies", "failing", "starts"),
    [
        (("fp16", "bf16"), "=bf16", {"fp16"}),
        (("fp16", "bf16"), "=fp16", {"bf16"}),
        ((), "nothing", {None}),
        (("fp16",), "precision", {None}),
    ],
)
def test_screens_start_from_precisions_that_are_there_and_likely_to_work(policies, failing, starts):
    found = screens(gpu_like(*policies), Wary(failing), 4)
    assert {route.get("precision.policy") for route in found} == starts


def test_a_space_without_knobs_has_no_screens():
    assert screens(RouteSpace(()), Wary(), 3) == []


def _measured(route, ratio):
    return Measurement(
        fingerprint="f", route=route, environment="e", status=Status.OK, purpose=Purpose.EXPLORE, latency_ms=ratio,
        default_ms=1.0, ratio=ratio, ratio_low=ratio, ratio_high=ratio, accuracy={"cos": 1e-5},
    )  # fmt: skip


def test_a_search_begins_with_screens_and_may_unite_them():
    space = gpu_like("fp16", "bf16")
    search = ModelSearch(space, view=Wary(), pool=600, builds=8)
    first = search.ask(2)
    assert first == screens(space, Wary(), 2)
    search.tell([_measured(route, 0.5) for route in first])
    second = search.ask(2)
    assert second == [Route({**first[0], **BF16}), Route({**first[1], **FP16})]
    search.tell([_measured(route, 0.5) for route in second])
    assert max(len(route) for route in search.ask(2)) > 1 + SCREENED


def test_a_screen_that_failed_is_not_tried_on_the_other_precision():
    search = ModelSearch(gpu_like("fp16", "bf16"), view=Wary(), pool=600, builds=8)
    first, other = search.ask(2)
    search.tell([_measured(first, 0.5), replace(_measured(other, 0.5), status=Status.CRASHED)])
    again = search.ask(2)
    assert Route({**first, **BF16}) == again[0]
    assert Route({**other, **FP16}) not in again


def test_few_builds_leave_half_of_them_to_the_cost_model():
    search = ModelSearch(gpu_like("fp16", "bf16"), view=Wary(), pool=600, builds=2)
    assert [len(route) > SCREENED for route in search.ask(2)] == [True, False]


def test_where_one_precision_works_a_screen_is_its_own_crossing():
    (screen,) = screens(gpu_like("fp16"), Wary(), 1)
    assert crossed(gpu_like("fp16"), Wary(), screen) == screen


def test_half_of_a_route_is_what_is_worth_most():
    route = Route({**FP16, **{f"compiler.knob{i}": "off" for i in (1, 2, 3, 8, 9)}})
    found = half(gpu_like("fp16"), Wary(), route)
    assert len(found) == 3
    assert {"precision.policy", "compiler.knob9"} < set(found)
    assert "compiler.knob8" not in found


def test_a_search_ends_with_half_of_a_long_route():
    search = ModelSearch(gpu_like("fp16"), view=Wary(), pool=600, builds=4)
    screened = search.ask(2)
    search.tell([_measured(route, 0.5) for route in screened])
    first, _ = search.ask(2)  # of one precision there is nothing to cross
    assert first == half(gpu_like("fp16"), Wary(), screened[0])
    assert len(first) == 7


class Learning(Wary):
    """A view that shares out what was measured among routes by the settings that they have in common."""

    def __init__(self, told=()):
        super().__init__()
        self.effects = {
            f"compiler.knob{i}": effect for i, effect in enumerate(np.random.default_rng(1).normal(0, 0.005, 100))
        }
        self.told = [item for item in told if item.ok]

    def predict(self, routes):
        said = super().predict(routes)
        said.log_ratio = said.log_ratio + np.array([sum(self.effects.get(name, 0.0) for name in r) for r in routes])
        if self.told:
            known = [item.route for item in self.told]
            off = np.array([item.log_ratio for item in self.told]) - Learning().predict(known).log_ratio
            kernel = _alike(known, known) + 0.05 * np.eye(len(known))
            said.log_ratio = said.log_ratio + _alike(routes, known) @ np.linalg.solve(kernel, off)
        return said

    def adapt(self, measurements):
        return Learning(measurements)


def _alike(routes, others):
    return np.array([[len(r.items() & o.items()) / math.sqrt(len(r) * len(o) + 1e-9) for o in others] for r in routes])


def _asked(noise):
    """The routes of a tune in which two settings matter, measured with a noise of a few thousandths."""
    effects = {"precision.policy": -0.5, "compiler.knob9": -0.2, "compiler.knob20": -0.1}
    rng = np.random.default_rng(noise)
    search = ModelSearch(gpu_like("fp16", "bf16"), view=Learning(), pool=300, builds=8)
    routes = []
    for _ in range(4):
        new = search.ask(2)
        routes += new
        logs = [sum(effects.get(name, 0.0) for name in route) + 0.003 * rng.standard_normal() for route in new]
        search.tell([_measured(route, math.exp(log)) for route, log in zip(new, logs, strict=True)])
    return set(routes)


def test_a_tune_made_again_asks_for_nearly_the_same_routes():
    common = [len(one & other) for one, other in itertools.combinations(map(_asked, range(4)), 2)]
    assert np.mean(common) >= 6


@pytest.mark.parametrize(
    ("policies", "options"),
    [((), {"builds": 1}), (("fp16",), {"builds": 8, "candidates": [FP16, Route({"compiler.knob3": "off"})]})],
)
def test_no_screens_where_nothing_can_come_of_them(policies, options):
    search = ModelSearch(gpu_like(*policies), view=Wary(), pool=600, **options)
    assert max(len(route) for route in search.ask(2)) <= 6


def test_no_screens_where_something_is_known():
    search = ModelSearch(gpu_like("fp16"), view=Wary(), pool=600, builds=8)
    search.tell([_measured(FP16, 0.5)])
    assert max(len(route) for route in search.ask(2)) <= 6
