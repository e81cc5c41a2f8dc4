"""What the shipped GPU history holds, and how well each collection went: ``python benchmarks/collection_summary.py``.

Measurements with less than ten minutes between them belong to one collection. Its rate counts from its first stored
measurement to its last, so without the start of processes and the export of networks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from common import save

from routecast.datasets.measurement import Measurement, Purpose
from routecast.datasets.records import BUILTIN, Records

PAUSE = timedelta(minutes=10)
WITHIN = 0.005


def when(item: Measurement) -> datetime:
    """When a measurement was made."""
    return datetime.fromisoformat(item.created)


def collections(measurements: Sequence[Measurement]) -> list[list[Measurement]]:
    """The measurements by collection, in order of time."""
    found: list[list[Measurement]] = []
    for item in sorted(measurements, key=when):
        if not found or when(item) - when(found[-1][-1]) > PAUSE:
            found.append([])
        found[-1].append(item)
    return found


def summary(measurements: Sequence[Measurement]) -> dict[str, object]:
    """Figures of one collection, or of all together."""
    controls = [item.ratio for item in measurements if item.purpose is Purpose.CONTROL and item.ok and item.ratio]
    return {
        "measurements": len(measurements),
        **{status.value: count for status, count in Counter(item.status for item in measurements).items()},
        "families": len({item.family for item in measurements}),
        "networks": len({item.fingerprint for item in measurements}),
        "hosts_and_gpus": len({item.environment for item in measurements}),
        "controls": len(controls),
        "controls_within_half_a_per_cent": sum(abs(ratio - 1) <= WITHIN for ratio in controls),
        "worst_control_per_cent": round(100 * max((abs(ratio - 1) for ratio in controls), default=0.0), 2),
        "engines_not_timed_again": sum(item.message.startswith("engine identical") for item in measurements),
        "with_device_state": sum(bool(item.device_state) for item in measurements),
        "throttled": sum(item.device_state.get("throttle_reasons", 0) != 0 for item in measurements),
        "routes_by_kind_of_knob": dict(Counter(kind for item in measurements for kind in kinds(item)).most_common()),
    }


def kinds(item: Measurement) -> set[str]:
    """Groups of the knobs that a route changes."""
    return {name.partition(".")[0] for name in item.route}


def main() -> None:
    """Prints and saves the figures."""
    records = Records.read_parquet(BUILTIN / "tensorrt_rtx_h200")
    rows: list[dict[str, object]] = [{"collection": "all", **summary(records.measurements)}]
    for part in collections(records.measurements):
        seconds = (when(part[-1]) - when(part[0])).total_seconds()
        row = {"collection": part[0].created[:16], **summary(part), "seconds": round(seconds)}
        rows.append({**row, "per_second": round(len(part) / seconds, 2)})
    for row in rows:
        print(row)
    environment = next(iter(records.environments.values()))
    print(save("collection_summary", rows, environment))


if __name__ == "__main__":
    main()
