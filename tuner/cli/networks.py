"""``routecast networks``: the zoo of networks to measure on."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from routecast.tuner.cli import options

if TYPE_CHECKING:
    from routecast.datasets.zoo import Network

app = typer.Typer(help="The zoo: networks to collect history on, or to try things with.", no_args_is_help=True)


@app.command("list")
def show(
    family: Annotated[str | None, typer.Option(help="Only this family.")] = None,
    json: options.JsonOption = False,
) -> None:
    """List the networks."""
    from routecast.datasets.zoo import networks
    from routecast.tuner.cli.output import console, print_json, table

    rows = [
        (item.name, item.family, item.source, "yes" if item.held_out else "")
        for item in networks()
        if family in (None, item.family)
    ]
    if json:
        keys = ("name", "family", "source", "held_out")
        print_json([dict(zip(keys, (*row[:3], bool(row[3])), strict=True)) for row in rows])
        return
    columns = ("network", "family", "source", "held out")
    title = f"{len(rows)} networks of {len({row[1] for row in rows})} families"
    console().print(table(columns, rows, title=title, text=columns[:3]))


@app.command()
def write(
    name: Annotated[str, typer.Argument(help="A network's name.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File to write.", show_default="NAME.onnx in this folder"),
    ] = None,
) -> None:
    """Write a network as an ONNX file."""
    from routecast.datasets.errors import UsageError
    from routecast.datasets.zoo import network

    target = output or Path(f"{name}.onnx")
    if target.exists():
        raise UsageError(f"{target} exists: name another file with --output")
    chosen = network(name)
    with tempfile.TemporaryDirectory(prefix="routecast-") as folder:
        shutil.copyfile(chosen.make(Path(folder)), target)
    typer.echo(f"{target} written; tune it with")
    typer.echo(f"  {tune_command(chosen, target)}")


def tune_command(network: Network, path: Path) -> str:
    """The command that tunes a network of the zoo, with the shapes and ranges that it needs."""
    words = ["routecast", "tune", str(path), "--family", network.family]
    for name, shape in network.shapes.items():
        words += ["--shapes", f"{name}:{'x'.join(map(str, shape))}"]
    for name, (low, high) in network.ranges.items():
        words += ["--range", f"{name}:{low:g}:{high:g}"]
    return shlex.join(words)
