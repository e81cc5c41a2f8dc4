"""``routecast tune``: the whole loop on one model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from routecast.tuner.cli import options
from routecast.tuner.cli.errors import say_if_interrupted

if TYPE_CHECKING:
    from routecast.tuner.results import TuneResult

_BUDGET = "Budget and search"
_ACCURACY = "Inputs and accuracy"
_LIMITS = "Limits of one route"
_FILES = "Where things go"


def tune(
    context: typer.Context,
    model: options.ModelArgument,
    *,
    shapes: options.ShapesOption = None,
    family: options.FamilyOption = "unknown",
    backend: options.BackendOption = "onnxruntime",
    builds: Annotated[int, typer.Option(min=1, help="Routes to build and measure.", rich_help_panel=_BUDGET)] = 8,
    rounds: Annotated[
        int,
        typer.Option(min=1, help="Rounds; the cost model is corrected in between.", rich_help_panel=_BUDGET),
    ] = 4,
    minutes: Annotated[
        float | None, typer.Option(help="Begin no new route after this time.", rich_help_panel=_BUDGET)
    ] = None,
    strategy: Annotated[
        str, typer.Option(help="model, random, fast, mixed or tpe.", rich_help_panel=_BUDGET)
    ] = "model",
    cost_model: options.CostModelOption = None,
    any_version: options.AnyVersionOption = False,
    seed: options.SeedOption = 0,
    inputs: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Input set, .npz or .npy; may be repeated.",
            show_default="generated",
            rich_help_panel=_ACCURACY,
        ),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="NAME:LOW:HIGH",
            help="Range of a generated input; may be repeated.",
            rich_help_panel=_ACCURACY,
        ),
    ] = None,
    metric: Annotated[str, typer.Option(help="l0, l1, l2, lInf or cos.", rich_help_panel=_ACCURACY)] = "cos",
    threshold: Annotated[float, typer.Option(help="Greatest loss allowed.", rich_help_panel=_ACCURACY)] = 1e-2,
    numerics: options.NumericsOption = True,
    timeout: Annotated[float, typer.Option(help="Seconds.", rich_help_panel=_LIMITS)] = 120.0,
    memory_gb: Annotated[
        float | None,
        typer.Option(help="Memory in GB.", show_default="four fifths of the machine's", rich_help_panel=_LIMITS),
    ] = None,
    ray: options.RayOption = None,
    history: Annotated[str | None, options.history(_FILES)] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Results.",
            show_default="routecast-MODEL in this folder",
            rich_help_panel=_FILES,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted tune.", rich_help_panel=_FILES)
    ] = False,
    json: options.JsonOption = False,
) -> None:
    """Find a faster route of MODEL: predict, measure the most promising ones, confirm the winner."""
    from routecast.tuner.cli.output import console, print_json
    from routecast.tuner.progress import TerminalProgress
    from routecast.tuner.tuning import TuneConfig
    from routecast.tuner.tuning import tune as run

    say_if_interrupted(
        context, "every measurement made so far is kept; the same command with --resume goes on from there"
    )
    config = TuneConfig(
        backend=backend,
        builds=builds,
        rounds=rounds,
        minutes=minutes,
        strategy=strategy,
        cost_model=cost_model,
        any_version=any_version,
        metric=metric,
        threshold=threshold,
        seed=seed,
        timeout_s=timeout,
        memory_gb=memory_gb,
        allow_numerics=numerics,
    )
    result = run(
        model,
        shapes=options.parse_shapes(shapes),
        family=family,
        inputs=inputs or (),
        ranges=options.parse_ranges(ranges),
        history=history,
        output=output,
        resume=resume,
        config=config,
        observer=TerminalProgress(console(err=True)),
        ray=ray,
    )
    if json:
        print_json(result.to_json())
    else:
        show(result, metric)


def show(result: TuneResult, metric: str) -> None:
    """Prints predicted against measured, the winner, and where everything is."""
    from routecast.tuner.cli.output import console
    from routecast.tuner.cli.tables import routes_table
    from routecast.tuner.sources import compare_result

    screen = console()
    for model in compare_result(result).models:
        screen.print(routes_table(model, screen.width, result.winner, metric))
    for warning in result.warnings:
        screen.print(f"note: {warning}", markup=False)
    lines = [
        ("winner", result.winner.label()),
        ("verdict", result.verdict),
        ("latency", f"{result.latency_ms:.3g} ms, default route {result.default_ms:.3g} ms"),
        ("speed-up", f"{result.speedup:.3f}x [{1 / result.ratio_high:.3f}, {1 / result.ratio_low:.3f}]"),
        (
            "A/A control",
            f"ratio of the default route to itself in [{result.control_low:.3f}, {result.control_high:.3f}]",
        ),
        ("artifact", str(result.artifact) if result.artifact else "none: use the model as it is"),
        ("report", str(result.output / "report.html")),
    ]
    for name, text in lines:
        screen.print(f"{name:<12} {text}", markup=False, soft_wrap=True)
