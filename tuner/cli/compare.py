"""``routecast compare``: predicted against measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from routecast.tuner.cli import options

if TYPE_CHECKING:
    from routecast.tuner.comparison import Comparison


def compare(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A tune's output folder, or a history: file, URL, Parquet folder, journal.",
            callback=options.without_password,
        ),
    ],
    cost_model: options.CostModelOption = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report with figures.")] = None,
    json: options.JsonOption = False,
) -> None:
    """Compare predicted with measured: errors, rank correlation, coverage, local times, losses."""
    from routecast.tuner.cli.output import print_json
    from routecast.tuner.sources import compare as run

    comparison = run(source, cost_model)
    if html is not None:
        from routecast.tuner.report import write_comparison

        write_comparison(comparison, html)
    if json:
        print_json(comparison.to_json())
    else:
        _show(comparison)
        if html is not None:
            typer.echo(f"report: {html}")


def _show(comparison: Comparison) -> None:
    from routecast.tuner.cli.output import console
    from routecast.tuner.cli.tables import figures, models_table, number, percent, routes_table

    screen = console()
    if len(comparison.models) == 1:
        (model,) = comparison.models
        screen.print(routes_table(model, screen.width))
        for name, text in figures(model):
            screen.print(f"{name:<36} {text}", markup=False)
    else:
        screen.print(models_table(comparison.models, screen.width))
        scores = comparison.overall
        screen.print(
            f"{scores.routes} routes: median error of the ratio {percent(scores.ratio_error)}, "
            f"of the latency {percent(scores.latency_error)}; mean Spearman {number(scores.spearman, 2)}; "
            f"{percent(scores.coverage)} of ratios inside their interval",
            markup=False,
        )
    screen.print(f"source: {comparison.source}", markup=False, soft_wrap=True)
    screen.print(f"predictions: {comparison.predictor}", markup=False, soft_wrap=True)
    for note in comparison.notes:
        screen.print(f"note: {note}", markup=False)
