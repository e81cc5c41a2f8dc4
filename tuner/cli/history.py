"""``routecast history``: look into a history, take it elsewhere, bring others in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from routecast.tuner.cli import options

if TYPE_CHECKING:
    from routecast.datasets.history import History, HistoryStats

app = typer.Typer(help="The history of measurements: what it holds, export and import.", no_args_is_help=True)

_SHOWN = 12


@app.command()
def stats(history: options.HistoryOption = None, json: options.JsonOption = False) -> None:
    """Count what a history holds."""
    from routecast.tuner.cli.output import print_json

    with _existing(history) as opened:
        counted = opened.stats()
        if json:
            print_json({"history": opened.place, **counted.to_json()})
        else:
            _show(opened.place, counted)


@app.command("export")
def export_(
    folder: Annotated[Path, typer.Argument(help="Folder for the Parquet files; made when absent.")],
    history: options.HistoryOption = None,
) -> None:
    """Write a history as Parquet files."""
    with _existing(history) as opened:
        records = opened.records()
    records.write_parquet(folder)
    typer.echo(f"{len(records.measurements)} measurements of {len(records.graphs)} graphs written to {folder}")


@app.command("import")
def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A Parquet folder, a journal (.jsonl), another history, or builtin.",
            callback=options.without_password,
        ),
    ],
    history: options.HistoryOption = None,
) -> None:
    """Add measurements to a history; what it holds already is not added again."""
    from routecast.datasets.history import History
    from routecast.tuner.sources import read_records

    records = read_records(source)
    with History(history) as opened:
        new = opened.import_records(records)
        typer.echo(f"{new} of {len(records.measurements)} measurements were new in {opened.place}")


@app.command()
def migrate(history: options.HistoryOption = None) -> None:
    """Upgrade the tables of a history on a server, once every worker has this routecast.

    A file is upgraded when it is opened.
    """
    from routecast.datasets.schema import migrate as run

    done = run(history)
    if done.before == done.after:
        typer.echo(f"{done.place} has schema {done.after} already")
    else:
        typer.echo(f"{done.place} has schema {done.after} now, it had {done.before or 'no tables'}")


@app.command()
def grant(
    role: Annotated[str, typer.Argument(metavar="ROLE", help="A role of PostgreSQL that exists.")],
    history: options.HistoryOption = None,
) -> None:
    """Let a role read a history in PostgreSQL and add to it, and nothing else."""
    from routecast.datasets.roles import grant as run

    typer.echo(f"{role} may read {run(role, history)} and add to it, and nothing else")


def _existing(history: str | None) -> History:
    """Opens a history that the user named, without making one at a misspelt path."""
    from routecast.datasets.errors import UsageError
    from routecast.datasets.history import History
    from routecast.datasets.places import exists, locate, shown

    url = locate(history)
    if history is not None and not exists(url):
        raise UsageError(f"no such history: {shown(url)}")
    return History(history)


def _show(path: str, counted: HistoryStats) -> None:
    from routecast.tuner.cli.output import console, table

    screen = console()
    lines = [
        f"{path}: {counted.measurements:,} measurements, {counted.ok_share:.1%} ok",
        f"{counted.graphs} graphs, {counted.environments} environments, {counted.bytes / 1e6:.1f} MB",
    ]
    if counted.measurements:
        lines.append(f"first {counted.first}, last {counted.last}")
    for line in lines:
        screen.print(line, markup=False, soft_wrap=True)
    for name in ("status", "backend", "environment", "family", "model"):
        counts = list(getattr(counted, f"by_{name}").items())
        if not counts:
            continue
        rows = [(key, f"{number:,}") for key, number in counts[:_SHOWN]]
        if len(counts) > _SHOWN:
            rows.append((f"and {len(counts) - _SHOWN} more", f"{sum(number for _, number in counts[_SHOWN:]):,}"))
        screen.print(table((name, "measurements"), rows, text=(name,)))
