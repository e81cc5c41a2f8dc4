from __future__ import annotations

from dataclasses import replace

import numpy as np

from routecast.datasets.route import Route
from routecast.tuner.search import favourites, make_strategy
from routecast.tuner.search.acquisition import Attitude, choose_batch
from routecast.tuner.search.pool import Scores, grow_pool, refine


def tune(strategy, lab, builds=8, rounds=2):
    for _ in range(rounds):
        strategy.tell(lab.measure(strategy.ask(builds // rounds)))
    return strategy.best.log_ratio


def optimum(lab):
    return min(item.log_ratio for item in lab.measure(lab.routes()) if item.ok)


def test_finds_the_planted_optimum_with_eight_builds(lab, make_view):
    """The view knows the effects but not that two passes spoil each other."""
    for seed in range(3):
        strategy = make_strategy("model", lab.space, seed=seed, view=make_view(), pool=500, builds=8)
        assert tune(strategy, lab) <= optimum(lab) + 0.03


def test_a_broken_precision_leaves_builds_that_help(lab, make_view):
    """INT8 looks best by far, may fail, and does: other builds found nearly the best of what works."""
    broken = replace(lab, broken=frozenset({("precision.kind", "int8")}))
    view = make_view(failure_of={("precision.kind", "int8"): 0.3})
    for seed in range(3):
        strategy = make_strategy("model", lab.space, seed=seed, view=view, pool=500, builds=8)
        assert tune(strategy, broken) <= optimum(broken) + 0.1


def test_the_first_batch_hedges_a_risky_precision(lab, make_view):
    view = make_view(failure_of={("precision.kind", "int8"): 0.5})
    asked = make_strategy("model", lab.space, view=view, pool=500, builds=8).ask(4)
    risky = [route for route in asked if route.get("precision.kind") == "int8"]
    assert 1 <= len(risky) <= 3


def test_warnings_make_it_scan_one_knob_at_a_time(lab, make_view):
    view = make_view(backend="tensorrt")
    strategy = make_strategy("model", lab.space, view=view)
    first = strategy.ask(4)
    assert all(len(route) == 1 for route in first)
    assert first[0] == Route({"precision.kind": "int8"})  # the view still orders the scan
    strategy.tell(lab.measure(first))
    assert all(len(route) <= 2 for route in strategy.ask(8))


def test_another_order_for_the_scan(lab, make_view):
    order = make_view(effects={("session.arena", "off"): -1.0})
    view = make_view(backend="tensorrt")
    arena = Route({"session.arena": "off"})
    assert make_strategy("model", lab.space, view=view, order=order).ask(1) == [arena]
    assert make_strategy("model", lab.space, order=order).ask(1) == [arena]


def test_without_a_view_the_scan_goes_in_the_order_of_the_space_and_climbs(lab):
    strategy = make_strategy("model", lab.space)
    singles = lab.space.single_changes()
    assert strategy.ask(100)[: len(singles)] == singles
    strategy.tell(lab.measure(singles))
    assert strategy.best is not None
    later = strategy.ask(3)
    assert all(route["precision.kind"] == "int8" and len(route) == 2 for route in later)


def test_the_pool_grows_to_its_size_without_repeats(lab, make_view):
    pool = grow_pool(lab.space, make_view(), np.random.default_rng(0), 300)
    assert 150 <= len(pool.routes) <= 300 + len(lab.space.single_changes())
    assert len(set(pool.routes)) == len(pool.routes)
    assert Route() not in pool.routes
    assert set(lab.space.single_changes()) <= set(pool.routes)


def test_the_pool_evolves_towards_what_the_view_promises(lab, make_view):
    view = make_view()
    best = min(lab.routes(), key=lambda route: float(view.predict([route]).log_ratio[0]))
    assert best in grow_pool(lab.space, view, np.random.default_rng(0), 300).routes


def test_refining_adds_what_two_good_routes_make_together_and_each_with_one_setting_less(lab, make_view):
    slim, gelu = Route.parse("pass.slim=on session.spin=off"), Route.parse("pass.gelu=on session.arena=off")
    refined = refine(lab.space, make_view(), [Route({"session.pattern": "off"})], [slim, gelu])
    assert {Route({**slim, **gelu}), Route({"pass.slim": "on"}), Route({**gelu, "session.threads": "2"})} <= set(
        refined.routes
    )
    assert refined.routes == refine(lab.space, make_view(), [Route({"session.pattern": "off"})], [slim, gelu]).routes
    assert len(set(refined.routes)) == len(refined.routes)


def _scores(*rows):
    routes, mean, std, failure = zip(*rows, strict=True)
    arrays = (np.array(values, dtype=float) for values in (mean, std, failure))
    return Scores(tuple(Route.parse(route) for route in routes), *arrays)


NOTHING = Scores((), np.zeros(0), np.zeros(0), np.zeros(0))


def test_a_twin_of_the_first_choice_is_passed_over():
    """Without the correlation of shared settings the second choice would be the second best prediction."""
    scores = _scores(("q.p=int8", -0.5, 0.02, 0.4), ("q.p=int8 a.b=on", -0.49, 0.02, 0.4), ("q.r=on", -0.2, 0.02, 0.0))
    alone = _scores(("q.p=int8", -0.5, 0.02, 0.4), ("a.b=on", 0.01, 0.02, 0.0), ("q.r=on", -0.2, 0.02, 0.0))
    chosen = choose_batch(scores, 2, 0.0, alone, np.random.default_rng(0))
    assert [str(route) for route in chosen] == ["q.p=int8", "q.r=on"]


def test_exploration_prefers_the_uncertain():
    scores = _scores(("a.b=on", -0.10, 0.01, 0.0), ("c.d=on", -0.05, 0.09, 0.0))
    rng = np.random.default_rng
    assert choose_batch(scores, 1, -0.05, NOTHING, rng(0), attitude=Attitude(std_factor=0.3)) == [Route({"a.b": "on"})]
    assert choose_batch(scores, 1, -0.05, NOTHING, rng(0), attitude=Attitude(std_factor=3.0)) == [Route({"c.d": "on"})]


def test_what_was_known_before_decides_where_noise_would():
    rows = ("a.b=on", -0.100, 0.01, 0.0), ("c.d=on", -0.098, 0.01, 0.0), ("e.f=on", -0.05, 0.01, 0.0)
    prior = np.array([-0.05, -0.06, -0.2])
    assert choose_batch(_scores(*rows), 1, 0.0, NOTHING, np.random.default_rng(0)) == [Route({"a.b": "on"})]
    chosen = choose_batch(_scores(*rows), 1, 0.0, NOTHING, np.random.default_rng(0), prior=prior)
    assert chosen == [Route({"c.d": "on"})]  # not the third, which is surely worse


def test_when_nothing_improves_the_better_prediction_is_chosen():
    scores = _scores(("a.b=on", 3.0, 0.01, 0.0), ("c.d=on", 2.0, 0.01, 0.0))
    chosen = choose_batch(scores, 5, 0.0, NOTHING, np.random.default_rng(0))
    assert [str(route) for route in chosen] == ["c.d=on", "a.b=on"]
    none_left = scores.without({Route({"a.b": "on"}), Route({"c.d": "on"})})
    assert choose_batch(none_left, 3, 0.0, NOTHING, np.random.default_rng(0)) == []


def test_favourites_promise_most_and_differ(lab, make_view):
    view = make_view()
    found = favourites(lab.space, view, 3, seed=1)
    assert len(set(found)) == 3
    assert Route() not in found
    said = Scores.of(view, found).log_ratio
    typical = Scores.of(view, lab.space.sample(200, np.random.default_rng(0))).log_ratio
    assert said.max() < np.quantile(typical, 0.1)
    assert favourites(lab.space, view, 3, seed=1) == found
