"""Repeats the A/A control: the default route explored and confirmed as if it were a candidate. No winner may come out.

python benchmarks/aa_control.py [--network NAME] [--repeats 20]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from common import save

from routecast.datasets.measurement import Purpose
from routecast.datasets.model import open_model
from routecast.datasets.route import Route
from routecast.datasets.zoo import network
from routecast.tuner.backends.registry import get_backend
from routecast.tuner.confirmation import CONFIRMATIONS, Confirmation, control_margin, settled_control
from routecast.tuner.measure.workbench import BenchConfig, Workbench

LINE = "A/A {ratio:.4f} [{low:.4f}, {high:.4f}]  confirmed {confirmed:.4f}  winner: {winner}"


def main() -> None:
    """Runs the repeats and writes ``results/aa_control.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--network", default="ocr_orientation_b6")
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    item = network(arguments.network)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        model = open_model(item.make(Path(scratch)), item.shapes, name=item.name, family=item.family)
        backend = get_backend("onnxruntime")
        space = backend.space(model)
        with Workbench(model, backend, space, Path(scratch, "bench"), BenchConfig(ranges=item.ranges)) as bench:
            bench.start()
            for repeat in range(arguments.repeats):
                rows.append(repeat_control(bench))
                print(f"{repeat + 1:2d}  " + LINE.format(**rows[-1]))
    false_winners = sum(bool(row["winner"]) for row in rows)
    print(f"false winners: {false_winners} of {len(rows)}")
    save("aa_control", rows, network=item.name, repeats=arguments.repeats)


def repeat_control(bench: Workbench) -> dict[str, Any]:
    """One A/A control, and whether the default route, rebuilt and confirmed as a candidate is, wins over itself."""
    control = settled_control(lambda _: bench.measure(Route(), Purpose.CONTROL))
    confirmed = Confirmation(Route(), tuple(bench.measure(Route(), Purpose.CONFIRM) for _ in range(CONFIRMATIONS)))
    return {
        "ratio": control.ratio,
        "low": control.ratio_low,
        "high": control.ratio_high,
        "confirmed": confirmed.ratio,
        "winner": confirmed.wins(control_margin(control)),
    }


if __name__ == "__main__":
    main()
