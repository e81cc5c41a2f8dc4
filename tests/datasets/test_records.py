"""Tests of records and their Parquet files."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.measurement import LocalTime, Measurement, Status
from routecast.datasets.records import Records, builtin_records
from routecast.datasets.route import Route


def test_parquet_round_trips(records: Records, tmp_path: Path) -> None:
    records.write_parquet(tmp_path / "out")
    again = Records.read_parquet(tmp_path / "out")
    assert again.measurements == records.measurements  # these times are exact as 32-bit floats
    assert again.graphs == records.graphs
    assert again.environments == records.environments
    assert again.digest() == records.digest()


def test_parquet_of_nothing(tmp_path: Path) -> None:
    Records().write_parquet(tmp_path)
    assert Records.read_parquet(tmp_path) == Records()


def test_parquet_replaces_what_was_there(records: Records, tmp_path: Path) -> None:
    records.write_parquet(tmp_path)
    records.filtered(lambda measurement: measurement.ok).write_parquet(tmp_path)
    assert len(Records.read_parquet(tmp_path)) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "environments.parquet",
        "graphs.parquet",
        "measurements.parquet",
    ]


def test_single_numbers_are_exact_and_times_are_32_bit(records: Records, tmp_path: Path) -> None:
    precise = replace(records.measurements[0], ratio=1 / 3, blocks_ms=(1 / 3,), accuracy={"cos": 1e-300})
    Records([precise], records.graphs, records.environments).write_parquet(tmp_path)
    (again,) = Records.read_parquet(tmp_path).measurements
    assert again.ratio == 1 / 3
    assert again.accuracy == {"cos": 1e-300}
    assert again.blocks_ms == (float(np.float32(1 / 3)),)


def test_a_history_of_the_size_that_is_shipped_is_compact(records: Records, tmp_path: Path) -> None:
    """1,500 measurements with 100 layers each, of noise that cannot be compressed, in less than 3 MB."""
    draw = random.Random(0)
    (fingerprint,), (environment,) = records.graphs, records.environments

    def measure(index: int) -> Measurement:
        layers = tuple(LocalTime(f"/encoder/layer.{i}/MatMul", "MatMul", draw.random(), i) for i in range(100))
        return Measurement(
            fingerprint,
            Route({"session.threads": str(index % 4)}),
            environment,
            Status.OK,
            latency_ms=draw.random(),
            default_ms=draw.random(),
            ratio=draw.random(),
            ratio_low=draw.random(),
            ratio_high=draw.random(),
            blocks_ms=tuple(draw.random() for _ in range(12)),
            default_blocks_ms=tuple(draw.random() for _ in range(12)),
            accuracy={name: draw.random() for name in ("l0", "l1", "l2", "lInf", "cos")},
            engine_hash=f"{draw.getrandbits(256):064x}",
            local_profile=layers,
        )

    Records([measure(i) for i in range(1500)], records.graphs, records.environments).write_parquet(tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2e6


@pytest.mark.parametrize("name", ["measurements", "graphs", "environments"])
def test_damaged_or_missing_files_are_refused(records: Records, tmp_path: Path, name: str) -> None:
    records.write_parquet(tmp_path)
    path = tmp_path / f"{name}.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UsageError, match=f"{name}.parquet is damaged"):
        Records.read_parquet(tmp_path)
    path.unlink()
    with pytest.raises(UsageError, match=f"{name}.parquet: no such file"):
        Records.read_parquet(tmp_path)


def test_folder_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        Records.read_parquet(tmp_path / "none")


def test_other_peoples_parquet_is_refused(records: Records, tmp_path: Path) -> None:
    records.write_parquet(tmp_path)
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "measurements.parquet")
    with pytest.raises(UsageError, match="that routecast did not write"):
        Records.read_parquet(tmp_path)


def test_newer_schema_is_refused(records: Records, tmp_path: Path) -> None:
    records.write_parquet(tmp_path)
    path = tmp_path / "graphs.parquet"
    table = parquet.read_table(path)
    parquet.write_table(table.replace_schema_metadata({"routecast_schema": "2"}), path)
    with pytest.raises(UsageError, match="has schema 2, this routecast reads up to 1: upgrade"):
        Records.read_parquet(tmp_path)


def test_a_disk_that_cannot_be_written_is_reported(records: Records, tmp_path: Path) -> None:
    (tmp_path / "measurements.parquet").mkdir()
    with pytest.raises(RoutecastError, match=r"cannot write .*measurements.parquet"):
        records.write_parquet(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot make the folder"):
        records.write_parquet(tmp_path / "file" / "folder")


def test_merged_holds_each_measurement_once(records: Records) -> None:
    first = records.filtered(lambda measurement: measurement.family == "cnn")
    assert len(first) == 3
    assert first.merged(records).digest() == records.digest()
    assert records.merged(first) == records
    assert Records().merged(records) == records


def test_digest_depends_on_what_is_held_and_not_on_its_order(records: Records) -> None:
    turned = replace(records, measurements=list(reversed(records.measurements)))
    assert turned.digest() == records.digest()
    assert replace(records, measurements=records.measurements[1:]).digest() != records.digest()


def test_families(records: Records) -> None:
    assert records.families() == {"cnn": 3, "transformer": 3}
    assert records.of_families(["cnn"]).families() == {"cnn": 3}
    assert records.without_families(["cnn"]).families() == {"transformer": 3}
    nothing = records.of_families(["none"])
    assert (nothing.measurements, nothing.graphs, nothing.environments) == ([], {}, {})


def test_builtin_records_come_from_the_folder_and_those_in_it(records: Records, tmp_path: Path) -> None:
    assert builtin_records(tmp_path) == Records()
    records.of_families(["cnn"]).write_parquet(tmp_path)
    records.of_families(["transformer"]).write_parquet(tmp_path / "gpu")
    assert builtin_records(tmp_path).digest() == records.digest()


def test_what_is_shipped_can_be_read() -> None:
    shipped = builtin_records()
    assert {measurement.fingerprint for measurement in shipped.measurements} <= set(shipped.graphs)
    assert {measurement.environment for measurement in shipped.measurements} <= set(shipped.environments)
    assert all(graph.fingerprint == key for key, graph in shipped.graphs.items())
