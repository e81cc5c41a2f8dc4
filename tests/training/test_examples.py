from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest

from routecast.datasets.measurement import LocalTime, Purpose, Status
from routecast.datasets.records import Records
from routecast.datasets.route import Route
from routecast.training.examples import Example, collate
from routecast.training.trainer import example_store

Generator = Callable[..., Records]


def make_examples(records: Records) -> list[Example]:
    with example_store(records) as store:
        return list(store)


def test_one_example_per_model_with_its_routes(synthetic: Generator) -> None:
    records = synthetic(["cnn", "mixer"], models=2, routes=6)
    examples = make_examples(records)
    assert [example.family for example in examples] == ["cnn", "cnn", "mixer", "mixer"]
    for example in examples:
        found = [item for item in records.measurements if item.fingerprint == example.fingerprint]
        assert example.routes == tuple(item.route for item in found)
        assert example.lengths.tolist() == [len(item.route) for item in found]
        settings = iter(example.route_tokens)
        for route, length in zip(example.routes, example.lengths, strict=True):
            assert Route(example.tokens[next(settings)] for _ in range(length)) == route
        assert example.log_ratio[1:] == pytest.approx([item.log_ratio for item in found[1:]])


def test_default_route_gives_local_times_but_no_ratio(synthetic: Generator) -> None:
    records = synthetic(["cnn"], models=1, routes=3)
    control = records.measurements[0]
    (example,) = make_examples(records)
    assert np.isnan(example.log_ratio[0])
    assert np.isnan(example.failed[0])
    assert example.log_build[0] == pytest.approx(math.log(control.build_seconds or 0))
    assert example.log_default == pytest.approx(math.log(control.default_ms or 0))
    assert example.local_shares.sum() == pytest.approx(1.0)
    assert example.log_local_sum == pytest.approx(math.log(control.local_sum_ms or 0))
    assert example.gap == pytest.approx(math.log((control.latency_ms or 0) / (control.local_sum_ms or 1)))


def test_layers_that_are_no_node_count_in_the_sum_only(synthetic: Generator) -> None:
    records = synthetic(["cnn"], models=1, routes=1)
    control = records.measurements[0]
    extra = (*control.local_profile, LocalTime("reorder", "Reorder", 100.0))
    records.measurements[0] = dataclasses.replace(control, local_profile=extra)
    (example,) = make_examples(records)
    assert example.local_shares.sum() == pytest.approx(1.0)
    assert math.exp(example.log_local_sum) > 100


def test_repeats_become_one_route(synthetic: Generator) -> None:
    records = synthetic(["cnn"], models=1, routes=2)
    again = dataclasses.replace(
        records.measurements[1], identity="again", status=Status.CRASHED, ratio=None, purpose=Purpose.CONFIRM
    )
    records.measurements.append(again)
    (example,) = make_examples(records)
    assert len(example.routes) == 3
    assert example.failed[1] == 0.5


def test_model_without_profile_or_timing_has_unknown_targets(synthetic: Generator) -> None:
    records = synthetic(["cnn"], models=1, routes=2)
    records.measurements = [
        dataclasses.replace(item, ratio=None, default_ms=None, local_profile=(), status=Status.CRASHED)
        for item in records.measurements
    ]
    (example,) = make_examples(records)
    assert np.isnan(example.local_shares).all()
    assert np.isnan([example.log_default, example.log_local_sum, example.gap]).all()
    assert np.isnan(example.log_ratio).all()
    assert example.failed[1:].tolist() == [1.0, 1.0]


def test_measurement_of_an_unknown_graph_is_left_out(synthetic: Generator) -> None:
    records = synthetic(["cnn"], models=2, routes=2)
    del records.graphs[records.measurements[0].fingerprint]
    assert len(make_examples(records)) == 1


def test_batch_lays_examples_end_to_end(synthetic: Generator) -> None:
    examples = make_examples(synthetic(["cnn", "mixer"], models=1, routes=5))
    batch = collate(examples)
    nodes = [len(example.graph.texts) for example in examples]
    assert batch.graphs.owner.bincount().tolist() == nodes
    assert int(batch.graphs.edges[:, -1].min()) >= nodes[0]
    assert batch.routes.owner.bincount().tolist() == [6, 6]
    second = batch.routes.tokens[int(batch.routes.offsets[6]) :]
    assert np.array_equal(second.numpy(), examples[1].route_tokens + len(examples[0].tokens))
    assert len(batch.targets.log_ratio) == 12
