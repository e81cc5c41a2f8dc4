"""``routecast predict``: rank routes without running anything."""

from __future__ import annotations

from typing import Annotated

import typer

from routecast.tuner.cli import options


def predict(
    model: options.ModelArgument,
    *,
    shapes: options.ShapesOption = None,
    backend: options.BackendOption = "onnxruntime",
    cost_model: options.CostModelOption = None,
    any_version: options.AnyVersionOption = False,
    numerics: options.NumericsOption = True,
    top: Annotated[int, typer.Option(min=1, help="Routes to show.")] = 10,
    pool: Annotated[int, typer.Option(min=2, help="Routes to score.")] = 4096,
    seed: options.SeedOption = 0,
    json: options.JsonOption = False,
) -> None:
    """Rank routes of MODEL by predicted latency, with intervals. Nothing is built or run."""
    from routecast.tuner.cli.output import console, print_json
    from routecast.tuner.cli.tables import predictions_table
    from routecast.tuner.ranking import predict as rank

    ranking = rank(
        model,
        shapes=options.parse_shapes(shapes),
        backend=backend,
        cost_model=cost_model,
        any_version=any_version,
        allow_numerics=numerics,
        top=top,
        pool=pool,
        seed=seed,
    )
    if json:
        print_json(ranking.to_json())
        return
    screen = console()
    title = f"{ranking.model_name} on {ranking.device}: best {len(ranking.routes)} of {ranking.scored} routes"
    screen.print(predictions_table(ranking.routes, title))
    interval = f"[{ranking.default_ms_low:.3g}, {ranking.default_ms_high:.3g}]"
    screen.print(
        f"default route: {ranking.default_ms:.3g} ms {interval}; cost model {ranking.cost_model}",
        markup=False,
    )
    for warning in ranking.warnings:
        screen.print(f"note: {warning}", markup=False)
