from __future__ import annotations

import numpy as np
import pytest

from routecast.datasets.errors import UsageError
from routecast.datasets.measurement import Measurement, Status
from routecast.datasets.route import Route
from routecast.training.learned import FILE, distinct_routes, save_learned, unlearned


def measurement(route: str, fingerprint: str = "f", environment: str = "e") -> Measurement:
    return Measurement(fingerprint, Route.parse(route), environment, Status.OK)


def test_only_routes_that_were_not_learned_are_new(tmp_path):
    save_learned([("f", "e", "a=1"), ("f", "e", "a=2"), ("f", "e", "a=1"), ("f", "e", "")], tmp_path)
    seen = [measurement("a=1"), measurement("a=1"), measurement("a=2")]
    new = [measurement("a=3"), measurement("a=1", "g"), measurement("a=1", environment="d"), measurement("a=3")]
    assert unlearned([*seen, *new, measurement("")], [tmp_path]) == new
    assert distinct_routes(new) == 3


def test_what_any_of_several_cost_models_learned_is_not_new(tmp_path):
    folders = [tmp_path / "champion", tmp_path / "loser"]
    for folder, route in zip(folders, ("a=1", "a=2"), strict=True):
        folder.mkdir()
        save_learned([("f", "e", route)], folder)
    assert [str(item.route) for item in unlearned(map(measurement, ("a=1", "a=2", "a=3")), folders)] == ["a=3"]


def test_without_a_cost_model_every_route_is_new(tmp_path):
    assert len(unlearned([measurement("a=1"), measurement("")], [])) == 1
    assert len(unlearned([measurement("a=1")], [tmp_path])) == 1


def test_damaged_memory_is_one_clear_line(tmp_path):
    (tmp_path / FILE).write_bytes(b"\x93NUMPY no more")
    with pytest.raises(UsageError, match="is damaged"):
        unlearned([], [tmp_path])
    np.save(tmp_path / FILE, np.zeros(3))
    with pytest.raises(UsageError, match="does not hold routes"):
        unlearned([], [tmp_path])


def test_pickled_memory_is_not_read(tmp_path):
    np.save(tmp_path / FILE, np.array([print], object), allow_pickle=True)
    with pytest.raises(UsageError, match="is damaged"):
        unlearned([], [tmp_path])
