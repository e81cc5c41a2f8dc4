"""``routecast history``: look into a history, take it elsewhere, bring others in."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from routecast.tuner.cli import options

if TYPE_CHECKING:
    from routecast.datasets.history import History, HistoryStats

app = typer.Typer(help="The history of measurements: what it holds, export and import.", no_args_is_help=True)

_SHOWN = 12


class ExportFormat(StrEnum):
    """What ``routecast history export`` writes."""

    PARQUET = "parquet"
    TRTEXEC_CACHE = "trtexec-cache"
    TRTEXEC_EXPRESSION = "trtexec-expression"


def _without_passwords(sources: list[str]) -> list[str]:
    for source in sources:
        options.without_password(source)
    return sources


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
    target: Annotated[
        Path, typer.Argument(help="Folder for the Parquet files, made when absent; a file for the other formats.")
    ],
    history: options.HistoryOption = None,
    form: Annotated[ExportFormat, typer.Option("--format", help="What to write.")] = ExportFormat.PARQUET,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Model to write for trtexec: its name or fingerprint.")
    ] = "",
    device: Annotated[
        str, typer.Option(metavar="NAME", help="Device to write for trtexec: its name or the environment's identity.")
    ] = "",
) -> None:
    """Write a history as Parquet files, or what it holds of one model for trtexec."""
    from routecast.tuner.cli.exchange import write_for_trtexec

    with _existing(history) as opened:
        records = opened.records()
    if form is ExportFormat.PARQUET:
        records.write_parquet(target)
        typer.echo(f"{len(records.measurements)} measurements of {len(records.graphs)} graphs written to {target}")
    else:
        write_for_trtexec(records, target, model, device, cache=form is ExportFormat.TRTEXEC_CACHE)


@app.command("import")
def import_(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="A Parquet folder, a journal (.jsonl), another history, or builtin; or what others measured: "
            "trtexec's tuning caches, --exportTimes, --exportProfile and logs, Torch-TensorRT's tuning caches.",
            callback=_without_passwords,
        ),
    ],
    history: options.HistoryOption = None,
    form: Annotated[
        str, typer.Option("--format", metavar="NAME", help="What the files are; auto tells by their content.")
    ] = "auto",
    model: Annotated[Path | None, typer.Option(metavar="FILE", help="The ONNX file that was measured.")] = None,
    models: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="Where to look for the ONNX files that the files name; may be repeated."),
    ] = None,
    shapes: options.ShapesOption = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="The GPU, such as 'NVIDIA H100 PCIe'.")] = "",
    tensorrt_version: Annotated[str, typer.Option(metavar="VERSION", help="TensorRT's, where no file says it.")] = "",
    route: Annotated[
        str | None, typer.Option(metavar="ROUTE", help="What was measured, where no file says it; or default.")
    ] = None,
    family: options.FamilyOption = "unknown",
    json: options.JsonOption = False,
) -> None:
    """Add measurements to a history; what it holds already is not added again."""
    from routecast.datasets.history import History
    from routecast.datasets.importers.request import ImportRequest
    from routecast.tuner.cli.exchange import gather, parse_route, show_import, show_nothing

    request = ImportRequest(
        model, tuple(models or ()), options.parse_shapes(shapes), device, tensorrt_version, parse_route(route), family
    )
    gathered = gather(sources, request, form)
    if gathered.files and not gathered.records.measurements:
        show_nothing(gathered, json=json)
    with History(history) as opened:
        new = opened.import_records(gathered.records)
        show_import(gathered, new, opened.place, json=json)


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
