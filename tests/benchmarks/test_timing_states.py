from __future__ import annotations

import os
from pathlib import Path

import onnx
import onnx.parser
from timing_states import RENEWED, Row, _built, by_core, table, timed

from routecast.datasets.model import open_model, write_static
from routecast.tuner.measure.inputs import generate_inputs

LATENCY_MS = {"fast": 0.50, "slow": 0.53}


def _rows(child: int, *states: str) -> list[Row]:
    """A child's rows from states such as ``process slow`` or ``nothing fast``."""
    pairs = [state.split() for state in states]
    return [
        {"beside": "alone", "child": child, "core": child, "renewed": renewed, "latency_ms": LATENCY_MS[speed]}
        for renewed, speed in pairs
    ]


def test_steps_are_counted_by_what_was_renewed_and_only_within_a_process() -> None:
    rows = [
        *_rows(0, "process slow", "nothing slow", "executable fast", "nothing fast"),
        *_rows(1, "process fast", "preparation fast", "executable slow", "executable fast"),
    ]
    columns = [list(column.cells) for column in table(rows).columns]

    assert list(zip(*columns, strict=True)) == [
        ("alone", "process", "1 of 2", ""),
        ("alone", "nothing", "0 of 1", "1 of 1"),
        ("alone", "preparation", "0 of 1", "0 of 0"),
        ("alone", "executable", "1 of 1", "0 of 2"),
    ]
    assert [list(column.cells) for column in by_core(rows).columns] == [["0", "1"], ["2 of 4", "1 of 4"]]


def test_a_process_times_after_every_renewal(tmp_path: Path) -> None:
    network = (
        '<ir_version: 8, opset_import: ["": 17]> network (float[64, 64] x) => (float[64, 64] y) { y = MatMul(x, x) }'
    )
    onnx.save(onnx.parser.parse_model(network), tmp_path / "network.onnx")
    model = open_model(tmp_path / "network.onnx")
    static = write_static(model, tmp_path)
    built = _built(static, "onnxruntime", tmp_path / "built")
    before = os.sched_getaffinity(0)
    rows = timed("onnxruntime", built, static, generate_inputs(model, seed=0), renewals=2, seed=0)

    assert rows[0]["renewed"] == "process"
    assert sorted(row["renewed"] for row in rows[1:]) == sorted(RENEWED * 2)
    cores = os.sched_getaffinity(0)
    assert all(row["core"] in cores for row in rows)
    assert cores == before
    assert all(min(row["blocks_ms"]) <= row["latency_ms"] <= max(row["blocks_ms"]) for row in rows)
