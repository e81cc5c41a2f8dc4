"""``routecast compare``: predicted against measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from routecast.tuner.cli import options

if TYPE_CHECKING:
    from routecast.tuner.compare import Comparison


def compare(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A tune's output folder, or a history: file, URL, Parquet folder, journal.")
    ],
    cost_model: options.CostModelOption = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report with figures.")] = None,
    json: options.JsonOption = False,
) -> None:
    """Compare predicted with measured: errors, rank correlation, coverage of intervals, local times, losses."""
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
    from routecast.tuner.cli.tables import models_table, number, percent, routes_table

    screen = console()
    if len(comparison.models) == 1:
        screen.print(routes_table(comparison.models[0]))
    screen.print(models_table(comparison.models))
    scores = comparison.overall
    screen.print(
        f"{comparison.source}: {scores.routes} routes; median error of the ratio {percent(scores.ratio_error)}, of the "
        f"latency {percent(scores.latency_error)}; Spearman {number(scores.spearman, 2)}; "
        f"{percent(scores.coverage)} of ratios inside their interval",
        markup=False,
        soft_wrap=True,
    )
    screen.print(f"predictions: {comparison.predictor}", markup=False)
    for note in comparison.notes:
        screen.print(f"note: {note}", markup=False)
