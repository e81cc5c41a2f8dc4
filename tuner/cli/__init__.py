"""The command line.

Nothing heavy is imported before a command needs it, so that ``routecast --help`` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from routecast.tuner.cli import collect, compare, doctor, history, knobs, networks, predict, retrain, train, tune
from routecast.tuner.cli.errors import GuardedGroup

app = typer.Typer(
    name="routecast",
    cls=GuardedGroup,
    help="Predicts which build route makes a neural network fastest, measures the best and learns from them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    tune.tune,
    predict.predict,
    knobs.knobs,
    collect.collect,
    train.train,
    retrain.retrain,
    compare.compare,
    doctor.doctor,
):
    app.command()(command)
app.add_typer(history.app, name="history")
app.add_typer(networks.app, name="networks")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"routecast {version('routecast')}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of every command; ``errors.py`` reads ``--debug``."""


def main() -> None:
    """Runs the command line."""
    app()
