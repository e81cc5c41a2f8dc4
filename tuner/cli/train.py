"""``routecast train``: learn from a history."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from routecast.tuner.cli import options
from routecast.tuner.cli.errors import say_if_interrupted

if TYPE_CHECKING:
    from routecast.training import TrainConfig, TrainOutcome

# Shown of each predictor: title, name of the figure, whether it is a share.
_FIGURES = (
    ("Spearman", "spearman", False),
    ("pairs right", "pairwise_accuracy", True),
    ("regret@8", "regret_at_8", True),
    ("ratio error", "ratio_mape", True),
    ("coverage", "coverage", True),
)


def train(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[HISTORY]",
            help="A history: file, URL, Parquet folder, journal, or builtin.",
            show_default="$ROUTECAST_HISTORY or the user's own",
            callback=options.without_password,
        ),
    ] = None,
    *,
    builtin: Annotated[bool, typer.Option(help="Learn from the shipped history as well.")] = True,
    members: options.MembersOption = None,
    epochs: options.EpochsOption = None,
    seed: options.SeedOption = 0,
    track: Annotated[
        bool, typer.Option(help="Record the run in MLflow, register the model, promote it when it is better.")
    ] = True,
    output: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Save the cost model here as well.")] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that share each step (torchrun), each with a batch of its own.")
    ] = 1,
    device: Annotated[str, typer.Option(help="Where they compute: cpu, or cuda for a GPU per process.")] = "cpu",
    json: options.JsonOption = False,
) -> None:
    """Train a cost model from a history; it becomes the champion when it beats the champion of today."""
    from routecast.training import train as run
    from routecast.tuner.cli.output import console, print_json
    from routecast.tuner.sources import open_history
    from routecast.tuner.train_progress import TrainProgress

    say_if_interrupted(context, "the training run was not finished; the champion is unchanged")
    observer = TrainProgress(console(err=True))
    try:
        with nullcontext() if source is None else open_history(source) as history:
            outcome = run(
                history,
                config=configured(seed, members, epochs),
                builtin=builtin,
                track=track,
                output=output,
                observer=observer,
                processes=processes,
                device=device,
            )
    finally:
        observer.close()
    if json:
        print_json({**vars(outcome), "evaluation": outcome.evaluation.to_json()})
    else:
        _show(outcome)


def configured(seed: int, members: int | None, epochs: int | None) -> TrainConfig:
    """How to train, with the defaults where nothing was asked for."""
    from routecast.training import TrainConfig

    config = TrainConfig(seed=seed)
    return replace(
        config,
        members=config.members if members is None else members,
        epochs=config.epochs if epochs is None else epochs,
    )


def _show(outcome: TrainOutcome) -> None:
    from routecast.tuner.cli.output import console, table
    from routecast.tuner.cli.tables import number, percent

    screen = console()
    evaluation = outcome.evaluation
    rows = [
        (
            name,
            *(percent(found.get(figure)) if share else number(found.get(figure), 3) for _, figure, share in _FIGURES),
        )
        for name, found in evaluation.figures.items()
    ]
    if evaluation.routes:
        title = f"Held-out families: {evaluation.routes} routes of {evaluation.models} models"
        columns = ("predictor", *(name for name, _, _ in _FIGURES))
        screen.print(table(columns, rows, title=title, text=("predictor",)))
    else:
        screen.print("no figures: a history of one family leaves none to hold out")
    lines = [("cost model", str(outcome.model_path)), ("verdict", outcome.reason)]
    if outcome.run_id:
        lines.append(("MLflow", f"run {outcome.run_id}, version {outcome.version}"))
    for name, text in lines:
        screen.print(f"{name:<12} {text}", markup=False, soft_wrap=True)
