from __future__ import annotations

import gc
import sqlite3
import weakref
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from routecast.datasets import History, Measurement, ParquetHistory, Records, Route, UsageError
from routecast.datasets.errors import RoutecastError
from routecast.training.examples import MOST_ROUTES, Example, collate
from routecast.training.store import ExampleStore
from routecast.training.streaming import RecordsSource, Source, gather
from routecast.training.trainer import example_store

Generator = Callable[..., Records]


@pytest.fixture
def records(synthetic: Generator) -> Records:
    """Measurements of several models in turn, as a fleet stores them."""
    found = synthetic(["cnn", "mixer", "unet"], models=2, routes=6)
    found.measurements = [found.measurements[place] for place in np.random.default_rng(0).permutation(len(found))]
    return found


def same(left: object, right: object) -> bool:
    if isinstance(left, np.ndarray):
        return np.array_equal(left, right, equal_nan=True)  # type: ignore[call-overload, no-any-return]
    if isinstance(left, torch.Tensor):
        return torch.equal(torch.nan_to_num(left, 9e9), torch.nan_to_num(right, 9e9))  # type: ignore[arg-type]
    if hasattr(left, "__dataclass_fields__"):
        return all(same(getattr(left, item.name), getattr(right, item.name)) for item in fields(left))  # type: ignore[arg-type]
    return left == right or left != left


def check_same(source: Source, records: Records) -> None:
    with example_store(source) as streamed, example_store(records) as held:
        assert len(streamed) == len(held) == 6
        assert all(same(left, right) for left, right in zip(streamed, held, strict=True))
        assert streamed.summary == held.summary
        order = np.random.default_rng(7).permutation(6)[:4]
        assert same(*(collate([store[int(place)] for place in order]) for store in (streamed, held)))


def test_a_database_gives_what_memory_gives(records: Records, tmp_path: Path) -> None:
    with History(tmp_path / "history.db") as history:
        history.import_records(records)
        check_same(history, records)


@pytest.mark.postgres
def test_a_server_gives_what_memory_gives(records: Records, postgres_url: str) -> None:
    with History(postgres_url) as history:
        history.import_records(records)
        check_same(history, records)


def test_parquet_gives_what_memory_gives(records: Records, tmp_path: Path) -> None:
    records.write_parquet(tmp_path)
    # Parquet keeps layer times as 32-bit floats.
    check_same(ParquetHistory(tmp_path), Records.read_parquet(tmp_path))


def test_the_summary_is_that_of_the_records(records: Records) -> None:
    with example_store(records) as store:
        ratios = [item.log_ratio for item in records.measurements if item.route]
        assert store.summary.digest == records.digest()
        assert store.summary.measurements == len(records)
        assert (store.summary.timed, store.models()) == (len(ratios), 6)
        assert store.summary.spread == pytest.approx(np.std(ratios), rel=1e-5)
        assert store.family_sizes() == records.families()


def test_measurements_are_never_all_in_memory(records: Records) -> None:
    most = 0

    class Counting(RecordsSource):
        def measurements(self, *, lean: bool) -> Iterator[Measurement]:
            nonlocal most
            alive: weakref.WeakSet[Measurement] = weakref.WeakSet()
            for number in range(500):
                measurement = Identified(
                    **vars(replace(records.measurements[number % len(records)], identity=str(number)))
                )
                alive.add(measurement)
                most = max(most, len(alive))
                yield measurement
                del measurement

    class Identified(Measurement):
        """A measurement without its own hash, which would take its mappings'."""

        __hash__ = object.__hash__

    gc.collect()
    with example_store(Counting(records)) as store:
        assert store.summary.measurements == 500
    assert most < 5


def test_a_measurement_in_two_histories_counts_once(records: Records) -> None:
    first, second = records.of_families(["cnn", "mixer"]), records.of_families(["mixer", "unet"])
    with example_store(first, second) as store:
        assert store.summary.measurements == len(records)
        assert store.summary.digest == records.digest()
        assert sorted(example.fingerprint for example in store) == sorted(records.graphs)


def test_repeats_under_new_identities_are_one_route(records: Records) -> None:
    again = [replace(item, identity=f"{item.identity} {copy}") for copy in range(3) for item in records.measurements]
    with example_store(Records(again, records.graphs, records.environments)) as store, example_store(records) as once:
        assert store.summary.measurements == 3 * len(records)
        assert store.routes.tolist() == once.routes.tolist()
        for left, right in zip(store, once, strict=True):
            assert left.routes == right.routes
            np.testing.assert_allclose(left.log_ratio, right.log_ratio, rtol=1e-5)
            assert (left.noise <= right.noise).all()


def large(synthetic: Generator, count: int) -> Records:
    """One model with many routes among small ones."""
    records = synthetic(["cnn", "mixer"], models=1, routes=3)
    first = records.measurements[1]
    records.measurements += [
        replace(first, route=Route({"knob": str(number)}), identity=str(number)) for number in range(count)
    ]
    return records


def test_a_model_with_many_routes_is_dealt_into_pieces(synthetic: Generator) -> None:
    records = large(synthetic, 2 * MOST_ROUTES)
    with example_store(records) as store:
        pieces = [example for example in store if example.family == "cnn"]
        assert len(pieces) == 3
        assert max(len(piece.routes) for piece in pieces) <= MOST_ROUTES
        assert sorted(str(route) for piece in pieces for route in piece.routes) == sorted(
            str(item.route) for item in records.measurements if item.family == "cnn"
        )
        assert len({piece.log_default for piece in pieces}) == 1
        chosen = store.sample()
        assert [store.families[index] for index in chosen] == ["cnn", "mixer"]
        kept = store.records(chosen)
        wanted = {*store[chosen[0]].routes, Route()}
        assert {item.route for item in kept.measurements if item.family == "cnn"} == wanted


def test_a_sample_has_every_family_and_is_no_larger_than_asked(records: Records) -> None:
    with example_store(records) as store:
        assert store.sample() == list(range(6))
        few = store.sample(3 * 7 + 8)
        assert {store.families[index] for index in few} == {"cnn", "mixer", "unet"}
        assert len(few) == 4
        assert few == sorted(few) == store.sample(3 * 7 + 8)
        assert len(store.sample(1)) == 3


def test_the_records_of_a_sample_are_the_measurements(records: Records) -> None:
    with example_store(records) as store:
        kept = store.records(store.sample())
    assert kept.digest() == records.digest()
    assert (kept.graphs, kept.environments) == (records.graphs, records.environments)
    stored = {item.identity: item for item in records.measurements}
    for item in kept.measurements:
        whole = stored[item.identity]
        plain = replace(whole, created="", local_profile=(), purpose=item.purpose)
        assert replace(item, local_profile=()) == plain
        assert item.local_sum_ms == (whole.local_sum_ms if whole.route.is_default else None)


def damage(path: Path, at: float) -> None:
    content = bytearray(path.read_bytes())
    start = int(len(content) * at)
    content[start : start + 64] = bytes(byte ^ 0x5A for byte in content[start : start + 64])
    path.write_bytes(content)


@pytest.mark.parametrize("at", [0.0, 0.2, 0.4, 0.999])
def test_damaged_parquet_is_one_clear_line(records: Records, tmp_path: Path, at: float) -> None:
    records.write_parquet(tmp_path / "history")
    damage(tmp_path / "history" / "measurements.parquet", at)
    with pytest.raises(UsageError, match=r"measurements\.parquet is damaged or no Parquet file") as caught:
        gather([ParquetHistory(tmp_path / "history")], tmp_path / "examples.db")
    assert "\n" not in str(caught.value)


def test_truncated_parquet_is_one_clear_line(records: Records, tmp_path: Path) -> None:
    records.write_parquet(tmp_path)
    path = tmp_path / "measurements.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UsageError, match=r"measurements\.parquet is damaged") as caught:
        ParquetHistory(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_without_room_is_one_clear_line(records: Records, tmp_path: Path) -> None:
    with pytest.raises(RoutecastError, match="cannot write the training examples to .*: unable to open") as caught:
        gather([RecordsSource(records)], tmp_path / "nowhere" / "examples.db")
    assert "\n" not in str(caught.value)


def test_a_store_is_only_read(records: Records) -> None:
    with example_store(records) as store:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            store._database.execute("DELETE FROM example")
        assert isinstance(ExampleStore(store.path)[0], Example)
