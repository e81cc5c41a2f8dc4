"""Whatever a file holds, an import ends with a report or with a usage error, and counts everything once."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routecast.datasets.build_routes import GROUP, build_route, parse_build_route
from routecast.datasets.errors import UsageError
from routecast.datasets.importers import Format, ImportRequest, import_files
from routecast.datasets.importers.command_line import of_banner, read_command
from routecast.datasets.route import Route

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
NAMES = st.text("abz09_:", min_size=1, max_size=8).filter(lambda name: name[0] != ":")
VALUES = st.text("aof019.+-", min_size=1, max_size=5)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that examples overwrite."""
    return tmp_path_factory.mktemp("anything") / "file"


def check(path: Path, form: Format | None, **request: Any) -> int:
    """Imports and returns how many measurements the file was said to hold."""
    try:
        imported = import_files([path], ImportRequest(route=Route(), device="GPU", **request), form)
    except UsageError:
        return 0
    (report,) = imported.files
    assert report.measurements == len(imported.records)
    assert all(reason and "\n" not in reason and number > 0 for reason, number in report.skipped.items())
    json.dumps([item.to_json() for item in imported.records.measurements], allow_nan=False)
    return report.found


@given(content=st.binary(max_size=400), form=st.sampled_from([None, *Format]))
@settings(deadline=None, max_examples=40)
def test_any_bytes(place: Path, content: bytes, form: Format | None) -> None:
    place.write_bytes(content)
    check(place, form)


@given(
    changes=st.dictionaries(
        st.sampled_from(
            [
                "argv",
                "default_build_route",
                "command_line",
                "files",
                "accuracy_algorithm",
                "accuracy_parameter",
                "tuner_version",
            ]
        ),
        JSON,
    ),
    rows=st.lists(JSON, max_size=5),
)
@settings(deadline=None, max_examples=40)
def test_any_json_in_a_cache(place: Path, samples: ModuleType, changes: dict[str, Any], rows: list[Any]) -> None:
    place.write_text(samples.text([{**samples.header(), **changes}, *[json.dumps(row) for row in rows]]))
    assert check(place, Format.TRTEXEC_CACHE) == len(rows)
    assert check(place, Format.TORCH_TENSORRT_CACHE) == len(rows)


ROW_KEYS = ("iter", "build_route", "crash", "error_message", "accuracy_loss", "gpu_time")


@given(rows=st.lists(st.dictionaries(st.sampled_from(ROW_KEYS), JSON), min_size=1, max_size=6))
@settings(deadline=None, max_examples=40)
def test_every_line_of_a_cache_is_counted(place: Path, samples: ModuleType, rows: list[dict[str, Any]]) -> None:
    base = samples.row(0, samples.route(), 1.0)
    place.write_text(samples.text([samples.header(), *[{**base, **row} for row in rows]]))
    assert check(place, None) == len(rows)


@given(cuts=st.lists(st.integers(0, 40), max_size=6), extra=st.text(max_size=60))
@settings(deadline=None, max_examples=40)
def test_any_part_of_a_log(place: Path, samples: ModuleType, cuts: list[int], extra: str) -> None:
    lines = samples.tuner_log([(samples.route(), "2.0"), (samples.route(kgen__tiling="0"), None)])
    kept = [extra if index in cuts else line for index, line in enumerate(lines)]
    place.write_text("\n".join(kept), encoding="utf-8", errors="replace")
    check(place, Format.TRTEXEC_LOG)


@given(items=JSON, tail=st.integers(0, 30))
@settings(deadline=None, max_examples=40)
def test_any_json_as_an_export(place: Path, items: Any, tail: int) -> None:
    text = json.dumps([{"computeMs": items}, items])
    place.write_text(text[: len(text) - tail])
    for form in (Format.TRTEXEC_TIMES, Format.TRTEXEC_PROFILE):
        assert check(place, form) == 1


@settings(deadline=None, max_examples=40)
@given(settings_=st.dictionaries(NAMES, VALUES, max_size=6), defaults=st.dictionaries(NAMES, VALUES, max_size=6))
def test_a_build_route_goes_there_and_back(settings_: dict[str, str], defaults: dict[str, str]) -> None:
    route = Route((GROUP + name, value) for name, value in settings_.items())
    assert parse_build_route(build_route(route), {}) == route
    kept = parse_build_route(build_route(route), defaults)
    assert all(defaults.get(name.removeprefix(GROUP)) != value for name, value in kept.items())
    assert kept.items() <= route.items()


@settings(deadline=None, max_examples=40)
@given(
    pairs=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("01")), max_size=4), default=st.sampled_from("01")
)
def test_a_knob_set_twice_is_seen_whatever_its_default(pairs: list[tuple[str, str]], default: str) -> None:
    text = " ".join(f"-{name}={value}" for name, value in pairs)
    if len(dict(pairs)) == len(pairs):
        wanted = Route((GROUP + name, value) for name, value in pairs if value != default)
        assert parse_build_route(text, {"a": default, "b": default}) == wanted
    else:
        with pytest.raises(UsageError, match="sets each knob once"):
            parse_build_route(text, {"a": default, "b": default})


@given(st.text())
def test_any_text_as_a_route(text: str) -> None:
    try:
        route = parse_build_route(text, {})
    except UsageError as error:
        assert "\n" not in str(error)
    else:
        assert Route.parse(str(route)) == route


@settings(deadline=None, max_examples=40)
@given(st.text(), st.lists(st.text()))
def test_any_command_line(text: str, arguments: list[str]) -> None:
    for found in (of_banner(text), arguments):
        command = read_command(found, None)
        assert Route.parse(str(command.settings)) == command.settings
