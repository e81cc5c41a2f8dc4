"""Tables and ``results/gpu_tuning.json`` of what ``gpu_tuning.py`` measured, as it came out.

python benchmarks/gpu_report.py ROWS.jsonl...
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from common import save
from gpu_tasks import SEARCHES
from rich.console import Console
from rich.table import Table

from routecast.datasets.environment import Environment

Row = dict[str, Any]
RAW = Path(__file__).parent / "results" / "gpu_tuning_rows.jsonl"
OURS = "routecast"
# The A/A ratio that counts as equal.
EQUAL = 0.005


def read_rows(paths: Sequence[Path]) -> list[Row]:
    """All rows, in the order in which they came."""
    return [json.loads(line) for path in paths for line in path.read_text().splitlines() if line]


def tunes(rows: Sequence[Row]) -> list[Row]:
    """Rows of tunes that ended, the first of a chain among them."""
    ended = [row for row in rows if "error" not in row]
    return [row for row in ended if row["kind"] == "tune" or (row["kind"] == "chain" and row["time"] == 1)]


def chained(rows: Sequence[Row]) -> list[Row]:
    """Rows of tunes that ended and had one history with others of their network, the first of a chain among them."""
    return [row for row in rows if row["kind"] == "chain" and "error" not in row]


def by_network(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """The first tune with the first seed by network and search."""
    found: dict[str, dict[str, Row]] = {}
    for row in tunes(rows):
        if row["seed"] == 0 and row.get("time", 1) == 1:
            found.setdefault(row["network"], {})[row["search"]] = row
    return found


def outcome(ours: Row, theirs: Row) -> str:
    """``wins`` or ``loses`` when two confirmed ratios differ by more than A/A may, and so do their intervals."""
    if ours["winner"] == theirs["winner"] or abs(math.log(ours["ratio"] / theirs["ratio"])) <= EQUAL:
        return "ties"
    if ours["high"] < theirs["low"]:
        return "wins"
    return "loses" if ours["low"] > theirs["high"] else "ties"


def against(rows: Sequence[Row]) -> dict[str, Row]:
    """Routecast against each other search over the networks that both tuned: geometric means of the speed-ups."""
    found: dict[str, Row] = {}
    for search in SEARCHES:
        pairs = [(each[OURS], each[search]) for each in by_network(rows).values() if OURS in each and search in each]
        if search == OURS or not pairs:
            continue
        results = [outcome(*pair) for pair in pairs]
        found[search] = {
            "networks": len(pairs),
            OURS: 1 / geometric_mean([ours["ratio"] for ours, _ in pairs]),
            "theirs": 1 / geometric_mean([theirs["ratio"] for _, theirs in pairs]),
            **{each: results.count(each) for each in ("wins", "ties", "loses")},
        }
    return found


def repeated(rows: Sequence[Row]) -> dict[str, Row]:
    """Tunes of one network again and with other seeds: whether all agree on the winner, or tie."""
    return {
        name: {
            "seeds": [row["seed"] for row in same],
            **_winners(same),
            "again": agreement([row for row in same if row["seed"] == 0]),
            "other_seeds": agreement(same),
        }
        for name, same in _of_networks(tunes(rows)).items()
    }


def continued(rows: Sequence[Row]) -> dict[str, Row]:
    """Tunes of one network one after the other with one history: whether all agree on the winner, or tie."""
    return {
        name: {**_winners(same), "again": agreement(same), "after_the_first": agreement(same[1:])}
        for name, same in _of_networks(chained(rows)).items()
    }


def duels(rows: Sequence[Row]) -> dict[str, Row]:
    """The winners of repeated tunes timed in one go: whether those of tunes with a history of their own tie."""
    apart = {(row["network"], row["winner"]) for row in tunes(rows) if row["search"] == OURS}
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["kind"] == "duel" and "error" not in row:
            found.setdefault(row["network"], []).append(row)
    return {
        name: {**_winners(same), "apart": agreement([row for row in same if (name, row["winner"]) in apart])}
        for name, same in found.items()
    }


def _of_networks(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Our tunes of each network that has several."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["search"] == OURS:
            found.setdefault(row["network"], []).append(row)
    return {name: same for name, same in found.items() if len(same) > 1}


def _winners(same: Sequence[Row]) -> Row:
    ratios = [[row["ratio"], row["low"], row["high"]] for row in same]
    return {"winners": [row["winner"] for row in same], "ratios": ratios}


def agreement(same: Sequence[Row]) -> str:
    """``agree`` on the winner, ``tie``, or ``differ``; ``once`` when there is nothing to compare."""
    if len(same) < 2:
        return "once"
    if len({row["winner"] for row in same}) == 1:
        return "agree"
    return "tie" if all(outcome(one, other) == "ties" for one in same for other in same) else "differ"


def controls(rows: Sequence[Row]) -> Row:
    """A/A repeats: how far off, and whether a false winner came out."""
    found = [row for row in rows if row["kind"] == "control" and "error" not in row]
    own = [math.log(bound) for row in tunes(rows) for bound in row["control"]]
    if not found:
        return {}
    return {
        "repeats": len(found),
        "false_winners": sum(bool(row["winner"]) for row in found),
        "within": sum(abs(row["ratio"] - 1) <= EQUAL for row in found),
        "worst": max((row["ratio"] for row in found), key=lambda ratio: abs(math.log(ratio))),
        "confirmed_within": sum(abs(row["confirmed"] - 1) <= EQUAL for row in found),
        "worst_confirmed": max((row["confirmed"] for row in found), key=lambda ratio: abs(math.log(ratio))),
        "rows": [[row[name] for name in ("network", "ratio", "low", "high", "confirmed", "winner")] for row in found],
        "widest_of_tunes": math.exp(max(map(abs, own), default=0.0)),
    }


def trap(rows: Sequence[Row]) -> list[Row]:
    """Routes of resnet50, how far off they are and what became of them."""
    found = [(row["network"], row["measurement"]) for row in rows if row["kind"] == "trap" and "error" not in row]
    return [
        {"network": name, **{key: item.get(key) for key in ("route", "status", "accuracy", "message")}}
        for name, item in found
    ]


def summary(row: Row) -> Row:
    """A tune's row without its measurements."""
    left_out = ("measurements", "predictions", "environment", "kind", "repeats", "model", "strategy")
    return {name: value for name, value in row.items() if name not in left_out}


def show(rows: Sequence[Row], console: Console) -> None:
    """Prints everything."""
    console.print(_networks(rows))
    table = Table("against", "networks", OURS, "theirs", "wins", "ties", "loses", title="Geometric means of speed-ups")
    for search, found in against(rows).items():
        means = [f"{found[name]:.3f}x" for name in (OURS, "theirs")]
        table.add_row(search, str(found["networks"]), *means, *(str(found[n]) for n in ("wins", "ties", "loses")))
    console.print(table)
    aa = controls(rows)
    console.print("A/A:", {name: value for name, value in aa.items() if name != "rows"}, soft_wrap=True)
    for label, networks in (("repeated", repeated(rows)), ("continued", continued(rows)), ("duel", duels(rows))):
        for name, found in networks.items():
            console.print(f"{label}: {name}:", found, soft_wrap=True)
    for row in rows:
        if row["kind"] == "kill" and "error" not in row:
            console.print("killed and resumed:", summary(row), soft_wrap=True)
    for found in trap(rows):
        cos = found["accuracy"].get("cos", math.nan) if found["accuracy"] else math.nan
        route = found["route"] or "default"
        console.print(f"trap: {found['network']}: {route}: {found['status']} cos {cos:.2g}", soft_wrap=True)
    for warning in sorted({warning for row in tunes(rows) for warning in row.get("warnings", ())}):
        console.print(f"warning: {warning}", soft_wrap=True)
    for row in rows:
        if "error" in row:
            console.print(
                f"without result: {row['kind']} {row['network']} {row['search']} {row['seed']}: {row['error']}"
            )


def _networks(rows: Sequence[Row]) -> Table:
    titles = ("network", "default ms", "best ms", "speed-up [95 %]", "cos loss", "ok of builds", "minutes")
    rivals = [search for search in SEARCHES if search != OURS]
    table = Table(*titles, *rivals, title="Tuned with routecast, and the speed-up that the others found")
    for name, found in by_network(rows).items():
        if OURS not in found:
            continue
        ours = found[OURS]
        table.add_row(
            name,
            f"{ours['default_ms']:.3f}",
            f"{ours['latency_ms']:.3f}",
            _speedup(ours),
            f"{ours['accuracy'].get('cos', math.nan):.1e}",
            f"{ours['ok']} of {ours['builds']}",
            f"{ours['minutes']:.1f}",
            *(_speedup(found[rival]) if rival in found else "" for rival in rivals),
        )
    return table


def _speedup(row: Row) -> str:
    if not row["winner"]:
        return "1 (default)"
    return f"{1 / row['ratio']:.3f}x [{1 / row['high']:.3f}, {1 / row['low']:.3f}]"


def main() -> None:
    """Prints the tables, and writes the figures and, beside them, the rows they come from."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", type=Path, nargs="+")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    options = parser.parse_args()
    rows = read_rows(options.rows)
    show(rows, Console())
    if options.dry:
        return
    figures = {
        "tunes": [summary(row) for row in tunes(rows)],
        "against": against(rows),
        "repeated": repeated(rows),
        "continued": continued(rows),
        "duels": duels(rows),
        "control": controls(rows),
        "killed": [summary(row) for row in rows if row["kind"] == "kill"],
        "trap": trap(rows),
        "without_result": [summary(row) for row in rows if "error" in row],
    }
    environment = Environment.from_json(tunes(rows)[0]["environment"]) if tunes(rows) else None
    save("gpu_tuning", figures, environment)
    RAW.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
