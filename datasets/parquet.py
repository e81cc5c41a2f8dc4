"""The Parquet files of a set of records.

``measurements.parquet`` has one row per measurement and one column per attribute, ``local_profile`` as four
list columns; ``graphs.parquet`` and ``environments.parquet`` hold JSON by key. Lists of times are 32-bit
floats and repeated texts are dictionary-encoded, so that a profile costs about 5 bytes per layer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from routecast.datasets.environment import Environment
from routecast.datasets.errors import MissingPackage, RoutecastError, UsageError
from routecast.datasets.graph import Graph
from routecast.datasets.measurement import Measurement

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

SCHEMA = 1
"""Version of the files; raised when an older reader would misread them."""

MEASUREMENTS = "measurements.parquet"
ROW_GROUP = 16384
"""Measurements per row group: what a reader decodes at once."""
BATCH, BUFFER = 512, 1 << 20

TEXTS = ("fingerprint", "route", "environment", "status", "model", "family", "purpose", "run", "message")
UNIQUE_TEXTS = ("identity", "created", "engine_hash")
NUMBERS = ("latency_ms", "default_ms", "ratio", "ratio_low", "ratio_high", "build_seconds", "load_seconds")
INTEGERS = ("engine_bytes", "peak_bytes")
BLOCKS = ("blocks_ms", "default_blocks_ms")
MAPS = ("accuracy", "device_state")
LAYERS = ("name", "op", "ms", "node")

Parts = tuple[list[Measurement], dict[str, Graph], dict[str, Environment]]


def write(
    folder: Path,
    measurements: Sequence[Measurement],
    graphs: Mapping[str, Graph],
    environments: Mapping[str, Environment],
) -> None:
    """Writes the three files, each whole or not at all.

    Raises:
        UsageError: the folder cannot be made.
        RoutecastError: writing failed.
    """
    pa = _pyarrow()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror}") from error
    schema = _schema()
    rows = [_row(measurement) for measurement in measurements]
    columns = {name: [row[name] for row in rows] for name in schema.names}
    _write(pa.table(columns, schema=schema), folder / MEASUREMENTS)
    _write(
        _keyed("fingerprint", {key: graph.to_json() for key, graph in graphs.items()}),
        folder / "graphs.parquet",
    )
    contents = {key: environment.to_json() for key, environment in environments.items()}
    _write(_keyed("identity", contents), folder / "environments.parquet")


def read(folder: Path) -> Parts:
    """Reads the three files.

    Raises:
        UsageError: a file is missing, damaged or of a newer schema.
    """
    graphs, environments = read_graphs(folder), read_environments(folder)
    with _ours(folder):
        return (
            list(stream(folder)),
            {key: Graph.from_json(json.loads(text)) for key, text in graphs.items()},
            {key: Environment.from_json(json.loads(text)) for key, text in environments.items()},
        )


def stream(folder: Path, *, lean: bool = False) -> Iterator[Measurement]:
    """Reads the measurements in their order, some hundred at a time.

    Args:
        folder: where the files are.
        lean: leaves out the local profiles of all routes but the default one.

    Raises:
        UsageError: the file is missing, damaged or of a newer schema.
    """
    path = folder / MEASUREMENTS
    file = _open(path)
    with file, _intact(path), _ours(folder):
        # A batch ends with its row group, so that no more than one of them is ever decoded.
        for batch in file.iter_batches(batch_size=BATCH):
            for row in _rows(batch, lean):
                yield _measurement(row)


def _rows(batch: pa.RecordBatch, lean: bool) -> list[dict[str, Any]]:
    """Row by row; column by column is ten times as fast as ``RecordBatch.to_pylist``."""
    layers = [f"layer_{name}" for name in LAYERS]
    names = [name for name in batch.schema.names if not (lean and name in layers)]
    columns = [_column(batch, name).to_pylist() for name in names]
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    if lean:
        profiled = [index for index, row in enumerate(rows) if not row["route"]]
        profiles = dict(zip(profiled, batch.select(layers).take(profiled).to_pylist(), strict=True))
        none: dict[str, Any] = dict.fromkeys(layers, ())
        return [{**row, **profiles.get(index, none)} for index, row in enumerate(rows)]
    return rows


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    return column.dictionary_decode() if _pyarrow().types.is_dictionary(column.type) else column


def count(folder: Path) -> int:
    """How many measurements there are.

    Raises:
        UsageError: the file is missing, damaged or of a newer schema.
    """
    with _open(folder / MEASUREMENTS) as file:
        return int(file.metadata.num_rows)


def read_graphs(folder: Path) -> dict[str, str]:
    """The JSON of each graph, by fingerprint.

    Raises:
        UsageError: the file is missing, damaged or of a newer schema.
    """
    return _texts(folder / "graphs.parquet", "fingerprint")


def read_environments(folder: Path) -> dict[str, str]:
    """The JSON of each environment, by identity.

    Raises:
        UsageError: the file is missing, damaged or of a newer schema.
    """
    return _texts(folder / "environments.parquet", "identity")


def _texts(path: Path, key: str) -> dict[str, str]:
    with _open(path) as file, _intact(path), _ours(path.parent):
        table = file.read([key, "content"])
        return dict(zip(table[key].to_pylist(), table["content"].to_pylist(), strict=True))


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingPackage("pyarrow", "Parquet") from error
    return pyarrow


def _schema() -> pa.Schema:
    pa = _pyarrow()
    text, repeated = pa.string(), pa.dictionary(pa.int32(), pa.string())
    fields = [(name, repeated) for name in TEXTS]
    fields += [(name, text) for name in UNIQUE_TEXTS]
    fields += [(name, pa.float64()) for name in NUMBERS]
    fields += [(name, pa.int64()) for name in INTEGERS]
    fields += [(name, pa.list_(pa.float32())) for name in BLOCKS]
    fields += [(name, pa.map_(text, pa.float64())) for name in MAPS]
    kinds = {"name": text, "op": text, "ms": pa.float32(), "node": pa.int32()}
    fields += [(f"layer_{name}", pa.list_(kinds[name])) for name in LAYERS]
    return pa.schema(fields)


def _row(measurement: Measurement) -> dict[str, Any]:
    row = measurement.to_json()
    layers = row.pop("local_profile")
    maps = {name: list(row[name].items()) for name in MAPS}
    return {**row, **maps, **{f"layer_{name}": [layer[name] for layer in layers] for name in LAYERS}}


def _measurement(row: dict[str, Any]) -> Measurement:
    columns = [row.pop(f"layer_{name}") for name in LAYERS]
    layers = [dict(zip(LAYERS, values, strict=True)) for values in zip(*columns, strict=True)]
    maps = {name: dict(row.get(name) or ()) for name in MAPS}  # a file of an earlier version may lack one
    return Measurement.from_json({**row, **maps, "local_profile": layers})


def _keyed(key: str, contents: Mapping[str, Any]) -> pa.Table:
    texts = [json.dumps(content, separators=(",", ":")) for content in contents.values()]
    return _pyarrow().table({key: list(contents), "content": texts})


def _write(table: pa.Table, path: Path) -> None:
    from pyarrow import parquet

    table = table.replace_schema_metadata({"routecast_schema": str(SCHEMA)})
    part = path.with_suffix(".part")
    try:
        parquet.write_table(
            table,
            part,
            compression="zstd",
            compression_level=19,
            row_group_size=ROW_GROUP,
            write_page_checksum=True,
        )
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise RoutecastError(f"cannot write {path}: {error}; free some space or choose another folder") from error


@contextmanager
def _intact(path: Path) -> Iterator[None]:
    """Says which file is damaged."""
    try:
        yield
    except (_pyarrow().ArrowException, OSError) as error:
        raise UsageError(f"{path} is damaged or no Parquet file: {' '.join(str(error).split())}") from error


@contextmanager
def _ours(folder: Path) -> Iterator[None]:
    """Says that a file holds something else than it should."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{folder} holds Parquet files that routecast did not write: {error!r}") from error


def _open(path: Path) -> pq.ParquetFile:
    """Opens a file whose pages are read when they are asked for, and checked where it holds checksums."""
    _pyarrow()
    from pyarrow import parquet as pq

    if not path.parent.is_dir():
        raise UsageError(f"{path.parent}: no such folder; give one that holds {MEASUREMENTS}")
    if not path.is_file():
        raise UsageError(f"{path}: no such file; a set of records has measurements, graphs and environments")
    with _intact(path):
        file = pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False, page_checksum_verification=True)
    version = int((file.metadata.metadata or {}).get(b"routecast_schema", b"0"))
    if version > SCHEMA:
        raise UsageError(f"{path} has schema {version}, this routecast reads up to {SCHEMA}: upgrade routecast")
    return file
