from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import pytest

from routecast.datasets.errors import MissingPackage, UsageError
from routecast.datasets.measurement import Purpose
from routecast.datasets.route import Knob, Route, RouteSpace
from routecast.tuner.search import make_strategy, strategy_names

ALL = ("model", "random", "fast", "mixed", "tpe")


def run(strategy, lab, count, rounds):
    asked = []
    for _ in range(rounds):
        routes = strategy.ask(count)
        strategy.tell(lab.measure(routes))
        asked += routes
    return asked


def test_the_names_are_those_that_can_be_made(lab):
    assert set(strategy_names()) == set(ALL)
    for name in strategy_names():
        assert make_strategy(name, lab.space).name == name


def test_an_unknown_strategy_is_a_usage_error(lab):
    with pytest.raises(UsageError, match=r"no strategy 'annealing': choose one of model, random"):
        make_strategy("annealing", lab.space)


@pytest.mark.parametrize("name", ALL)
def test_asks_are_new_canonical_and_never_the_default(name, lab, make_view):
    asked = run(make_strategy(name, lab.space, view=make_view(), pool=200), lab, 5, 6)
    assert asked
    assert len(set(asked)) == len(asked)
    assert Route() not in asked
    assert all(lab.space.canonical(route) == route for route in asked)


@pytest.mark.parametrize("name", ["model", "random", "tpe"])
def test_every_route_is_asked_once_and_then_none(name, make_view, lab):
    space = RouteSpace(lab.space.knobs[:4])
    strategy = make_strategy(name, space, view=make_view(), pool=50)
    asked = []
    while routes := strategy.ask(7):
        asked += routes
        strategy.tell(lab.measure(routes))
    # precision.keep does nothing unless precision.kind is int8: (2 + 2) * 3 * 2 routes, one of them the
    # default.
    assert len(asked) == len(set(asked)) == 23


@pytest.mark.parametrize("name", ALL)
def test_the_same_seed_asks_the_same(name, lab, make_view):
    first, second = (
        run(make_strategy(name, lab.space, seed=3, view=make_view(), pool=200), lab, 4, 2) for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("name", ["random", "tpe"])
def test_another_seed_asks_something_else(name, lab):
    first, second = (make_strategy(name, lab.space, seed=seed).ask(6) for seed in (0, 1))
    assert first != second


@pytest.mark.parametrize("name", ALL)
def test_what_was_told_is_not_asked(name, lab, make_view):
    known = lab.routes()[::2]
    strategy = make_strategy(name, lab.space, view=make_view(), pool=200)
    strategy.tell(lab.measure(known))
    asked = run(strategy, lab, 5, 4)
    assert asked
    assert not set(asked) & set(known)


@pytest.mark.parametrize("name", ALL)
def test_failures_are_survived(name, lab, make_view):
    broken = replace(lab, broken=frozenset({("precision.kind", "int8"), ("session.threads", "2")}))
    strategy = make_strategy(name, lab.space, view=make_view(), pool=200)
    run(strategy, broken, 5, 4)
    assert strategy.best is not None
    assert not broken.broken & set(strategy.best.route.items())


@pytest.mark.parametrize("name", ALL)
def test_a_space_without_choices_is_exhausted_at_once(name, make_view):
    empty = RouteSpace((Knob("session.spin", ("on",), "on"),))
    assert make_strategy(name, empty, view=make_view()).ask(3) == []
    assert make_strategy(name, RouteSpace(())).ask(3) == []


def test_asking_for_none_and_for_fewer_than_none(lab):
    strategy = make_strategy("random", lab.space)
    assert strategy.ask(0) == []
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        strategy.ask(-1)


def test_the_control_is_ignored_and_a_confirmation_replaces(lab):
    strategy = make_strategy("random", lab.space)
    (first,) = lab.measure([Route({"pass.slim": "on"})])
    strategy.tell([replace(first, route=Route(), ratio=0.1, purpose=Purpose.CONTROL)])
    assert strategy.best is None
    strategy.tell([first])
    strategy.tell([replace(first, ratio=0.99, purpose=Purpose.CONFIRM)])
    assert strategy.best is not None
    assert strategy.best.ratio == 0.99


def test_fast_is_every_single_change_in_order(lab):
    strategy = make_strategy("fast", lab.space)
    assert strategy.ask(100) == lab.space.single_changes()
    assert strategy.ask(1) == []


def test_mixed_goes_on_with_the_product_of_the_winners(lab):
    strategy = make_strategy("mixed", lab.space)
    singles = strategy.ask(100)
    assert singles == lab.space.single_changes()
    assert strategy.ask(1) == []  # nothing is known of the singles yet
    strategy.tell(lab.measure(singles))
    products = strategy.ask(1000)
    # winners: kind (2 values), threads, spin, slim, gelu; with the default value: 3 * 2^4, less default and
    # singles
    assert len(products) == 48 - 1 - 6
    best = "pass.gelu=on pass.slim=on precision.kind=int8 session.spin=off session.threads=2"
    assert str(products[0]) == best
    assert all(len(route) > 1 for route in products)
    assert strategy.ask(1) == []


def test_tpe_prefers_what_was_fast(lab):
    """After 40 tells, TPE proposes better routes than chance does."""
    strategy = make_strategy("tpe", lab.space, seed=1)
    run(strategy, lab, 5, 8)
    later = [measurement.log_ratio for measurement in lab.measure(strategy.ask(5))]
    chance = [measurement.log_ratio for measurement in lab.measure(lab.routes())]
    assert sum(later) / 5 < sum(chance) / len(chance) - 0.1


def test_tpe_without_optuna_says_what_to_install(lab, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingPackage, match=r"pip install 'routecast\[optuna\]'"):
        make_strategy("tpe", lab.space)


def test_importing_the_strategies_loads_nothing_heavy():
    code = (
        "import sys, routecast.tuner.search; "
        "print(sorted({'torch', 'optuna', 'sklearn', 'mlflow', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_random_matches_the_spread_of_the_space(lab):
    sizes = {len(route) for route in make_strategy("random", lab.space).ask(200)}
    assert {1, 2, 3, 4, 5} <= sizes
    assert math.isclose(len(lab.routes()), 4 * 3 * 2 * 3 * 2**4 - 1)
