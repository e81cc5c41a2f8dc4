"""``routecast retrain``: one shot for cron or a scheduler."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from routecast.tuner.cli import options
from routecast.tuner.cli.errors import say_if_interrupted
from routecast.tuner.cli.train import configured

if TYPE_CHECKING:
    from routecast.training import RetrainOutcome, TrainConfig


def retrain(
    context: typer.Context,
    history: options.HistoryOption = None,
    *,
    min_new: Annotated[
        int, typer.Option(min=1, help="Train when this many routes were measured that no cost model learned from.")
    ] = 200,
    drift: Annotated[
        float,
        typer.Option(help="Train when errors on new routes are surely beyond this many times those at training."),
    ] = 1.25,
    builtin: Annotated[bool, typer.Option(help="Learn from the shipped history as well.")] = True,
    members: options.MembersOption = None,
    epochs: options.EpochsOption = None,
    seed: options.SeedOption = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, and why.")] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Put the champion before this one back; nothing is trained.")
    ] = False,
    json: options.JsonOption = False,
) -> None:
    """Train when enough is new or predictions have become worse; promote what beats the champion. Made for cron.

    One line says what was done. The exit status is 0 when all went well, whether or not anything had to be done, 75
    when another retrain of this history is running, 2 for wrong use and 1 for failed work.
    """
    from routecast.tuner.cli.output import print_json

    say_if_interrupted(context, "nothing was finished; the champion is unchanged")
    signal.signal(signal.SIGTERM, _interrupt)
    if rollback:
        from routecast.training import roll_back

        outcome = roll_back(dry_run=dry_run)
    else:
        outcome = _retrain(history, min_new, drift, builtin, dry_run, configured(seed, members, epochs))
    if json:
        print_json(outcome.to_json())
    else:
        typer.echo(str(outcome))


def _retrain(
    history: str | None, min_new: int, drift: float, builtin: bool, dry_run: bool, config: TrainConfig
) -> RetrainOutcome:
    from routecast.training import Policy
    from routecast.training import retrain as run
    from routecast.tuner.cli.output import console
    from routecast.tuner.train_progress import TrainProgress

    # Under cron every further line would be mail.
    observer = TrainProgress(console(err=True)) if sys.stderr.isatty() else None
    try:
        return run(
            history,
            policy=Policy(min_new, drift),
            config=config,
            builtin=builtin,
            dry_run=dry_run,
            observer=observer,
        )
    finally:
        if observer is not None:
            observer.close()


def _interrupt(*_: object) -> None:
    """A scheduler's way to stop a process ends it like Ctrl-C does: the run in MLflow is marked as failed."""
    raise KeyboardInterrupt
