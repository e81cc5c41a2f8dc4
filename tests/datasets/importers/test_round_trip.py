"""What is exported for trtexec is imported again as what it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from types import ModuleType
from typing import Any

import pytest

from routecast.datasets.errors import UsageError
from routecast.datasets.exporters import select, trtexec_cache, trtexec_expression
from routecast.datasets.exporters.trtexec import OTHER_KNOBS, REPEATED, UNTIMED
from routecast.datasets.importers import Imported
from routecast.datasets.measurement import Measurement, Purpose, Status
from routecast.datasets.records import Records
from routecast.datasets.route import Route

Load = Callable[..., Imported]


@pytest.fixture
def records(load: Load, samples: ModuleType) -> Records:
    """An imported mixed search: a default, single changes, a failure, an inaccurate route and two changes at once."""
    message = "child exited with status 1"
    rows = [
        samples.row(0, samples.route(), 2.0, accuracy_loss={"y": 0.0}),
        samples.row(1, samples.route(kgen__tiling="0"), 1.5, accuracy_loss={"y": 0.001}),
        samples.row(2, samples.route(kgen__tiling="1"), 1.0, error_message=message, accuracy_loss={"y": 0.5}),
        samples.row(3, samples.route(conv_lowering="off"), None),
        samples.row(4, samples.route(conv_lowering="off", kgen__tiling="0"), 1.25, accuracy_loss={"y": 0.0}),
    ]
    return load([samples.header(), *rows]).records


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_nothing_is_lost_on_the_way(records: Records, load: Load, samples: ModuleType) -> None:
    made = trtexec_cache(records, samples.DEFAULTS)
    assert (made.routes, made.left_out) == (5, {})
    again = load(made.text, name="again.json")
    assert again.files[0].skipped == {}
    assert {item.identity for item in again.records.measurements} == {item.identity for item in records.measurements}
    ratios = {item.identity: item.ratio for item in records.measurements}
    assert {item.identity: item.ratio for item in again.records.measurements} == ratios


def test_the_header_is_trtexecs(records: Records, samples: ModuleType) -> None:
    header = rows_of(trtexec_cache(records, samples.DEFAULTS).text)[0]
    assert list(header) == list(samples.header())
    assert header["tuner_version"] == "2.19.45"
    assert header["searching_algorithm"] == "mixed"
    assert header["tuning_expr"] == "-conv_lowering=[on|off] -kgen:tiling=[2|0|1]"
    assert header["default_build_route"] == samples.header()["default_build_route"]
    assert header["argv"][1:3] == ["--onnx=net.onnx", f"--tuneBuildRoutes={header['tuning_expr']}"]


def test_the_lines_are_in_the_order_of_the_search(records: Records, samples: ModuleType) -> None:
    """trtexec resumes by counting lines, so each must stand where its search would have put it."""
    header, *rows = rows_of(trtexec_cache(records, samples.DEFAULTS).text)
    assert list(rows[0]) == list(samples.row(0, "", 1.0))
    assert [row["iter"] for row in rows] == [0, 1, 2, 3, 0]
    assert [row["build_route"] for row in rows[:4]] == fast_search(header["tuning_expr"], samples.DEFAULTS)
    assert [row["crash"] for row in rows] == [False, False, False, True, False]


def fast_search(expression: str, defaults: dict[str, str]) -> list[str]:
    """The routes of a fast search: the default, then each other value, from the last knob to the first."""
    knobs = [token.removeprefix("-").split("=") for token in expression.split()]
    routes = [{name: defaults[name] for name, _ in knobs}]
    for name, values in reversed(knobs):
        routes += [{**routes[0], name: value} for value in values.strip("[]").split("|") if value != defaults[name]]
    return [" ".join(f"-{name}={value}" for name, value in route.items()) for route in routes]


def test_one_measurement_stands_for_a_route(records: Records, samples: ModuleType) -> None:
    first, single = records.measurements[:2]
    confirmed = replace(single, purpose=Purpose.CONFIRM, latency_ms=1.75, identity="a")
    later = replace(single, latency_ms=1.8, identity="b")
    other = replace(single, route=Route({"precision.policy": "fp16"}), identity="c")
    untimed = replace(single, latency_ms=None, identity="d")
    many = replace(records, measurements=[first, single, confirmed, later, other, untimed])
    made = trtexec_cache(many, samples.DEFAULTS)
    assert [row["gpu_time"] for row in rows_of(made.text)[1:]] == [2.0, 1.75]
    assert made.left_out == {REPEATED: 2, OTHER_KNOBS: 1, UNTIMED: 1}


def test_the_default_may_be_known_by_what_others_were_compared_with(records: Records, samples: ModuleType) -> None:
    single = records.measurements[1]
    only = replace(records, measurements=[single, replace(single, default_ms=2.5, identity="x")])
    assert rows_of(trtexec_cache(only, samples.DEFAULTS).text)[1]["gpu_time"] == 2.25
    unknown = replace(records, measurements=[replace(single, default_ms=None)])
    with pytest.raises(UsageError, match="the default route was never timed"):
        trtexec_cache(unknown, samples.DEFAULTS)


def test_every_failure_is_a_crash_there(records: Records, samples: ModuleType, load: Load) -> None:
    failures = (Status.BUILD_FAILED, Status.LOAD_FAILED, Status.CRASHED, Status.TIMED_OUT)
    measurements = [records.measurements[0]]
    for status, value in zip(failures, "0123", strict=True):
        measurements.append(failed(records.measurements[0], status, value))
    text = trtexec_cache(replace(records, measurements=measurements), samples.DEFAULTS).text
    assert [row["error_message"] for row in rows_of(text)[2:]] == [
        "build failed", "load failed", "crashed", "timed out",
    ]  # fmt: skip
    assert {item.status for item in load(text, name="f.json").records.measurements} == {Status.OK, Status.CRASHED}


def failed(first: Measurement, status: Status, value: str) -> Measurement:
    return Measurement(first.fingerprint, Route({"compiler.peep:max": f"1{value}"}), first.environment, status, "net")


def test_losses_that_are_no_numbers_are_written_as_trtexec_does(records: Records, samples: ModuleType) -> None:
    bad = replace(records.measurements[2], accuracy={"l0": float("inf")})
    text = trtexec_cache(replace(records, measurements=[records.measurements[0], bad]), samples.DEFAULTS).text
    assert rows_of(text)[2]["accuracy_loss"] == {"worst output": None}


def test_a_knob_without_a_known_default_cannot_be_written(records: Records) -> None:
    with pytest.raises(UsageError, match="the default of the compiler's knob conv_lowering is not known"):
        trtexec_cache(records, {"kgen:tiling": "2"})
    only = replace(records, measurements=[records.measurements[0]])
    with pytest.raises(UsageError, match="no measurement has a route of compiler knobs"):
        trtexec_cache(only, {})


def test_an_expression_tries_the_best_knob_first(records: Records, samples: ModuleType) -> None:
    """trtexec joins the lines of such a file, and begins with its last knob."""
    best = replace(records.measurements[1], route=Route({"compiler.peep:max": "9"}), ratio=0.5, identity="x")
    more = replace(records, measurements=[*records.measurements, best])
    assert trtexec_expression(more, samples.DEFAULTS).splitlines() == [
        "-kgen:tiling=[2|0]", "-conv_lowering=[on|off]", "-peep:max=[0|9]",
    ]  # fmt: skip
    slower = replace(records, measurements=records.measurements[:1])
    with pytest.raises(UsageError, match="no route with compiler knobs was faster"):
        trtexec_expression(slower, samples.DEFAULTS)


def test_one_model_and_device_are_selected(records: Records) -> None:
    first = records.measurements[0]
    (environment,) = records.environments.values()
    other = replace(environment, device="another GPU")
    second = replace(first, environment=other.identity, identity="x")
    third = replace(first, fingerprint="f" * 32, model="other", identity="y")
    both = Records([first, second, third], records.graphs, {**records.environments, other.identity: other})
    for model, device in product(("net", first.fingerprint), (environment.device, environment.identity)):
        assert select(both, model, device).measurements == [first]
    assert select(both, "other").measurements == [third]
    for model, device, said in (
        ("", "", "several match, name one with --model"),
        ("net", "", "several match, name one with --device"),
        ("none", "", "holds no measurement of model 'none'"),
        ("net", "none", "holds no measurement of device 'none'"),
    ):
        with pytest.raises(UsageError, match=said):
            select(both, model, device)
    with pytest.raises(UsageError, match="the history is empty"):
        select(Records())
