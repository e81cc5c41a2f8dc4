"""``routecast predict``: rank routes without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from routecast.datasets.errors import UsageError
from routecast.tuner.cli import options

if TYPE_CHECKING:
    from routecast.datasets.route import Route
    from routecast.tuner.backends.base import Backend


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
    route_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rank what the backend's own tuner can set alone, and write it for that tuner: for TensorRT, a "
            "--tuneBuildRouteFile of trtexec.",
        ),
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Rank routes of MODEL by predicted latency and risk, with intervals. Nothing is built or run."""
    from routecast.datasets.route import Route
    from routecast.tuner.cli.output import console, print_json
    from routecast.tuner.cli.tables import predictions_table
    from routecast.tuner.ranking import predict as rank

    tuner, routes = None, None
    if route_file is not None:
        tuner, routes = _tuner_routes(model, shapes, backend, numerics)
    ranking = rank(
        model,
        shapes=options.parse_shapes(shapes),
        backend=backend,
        routes=routes,
        cost_model=cost_model,
        any_version=any_version,
        allow_numerics=numerics,
        top=top,
        pool=pool,
        seed=seed,
    )
    if tuner is not None and route_file is not None:
        _write(route_file, tuner.tuner_file([item.route for item in ranking.routes], Route()))
    if json:
        print_json(ranking.to_json())
        return
    screen = console()
    where = ranking.device or "an unknown device"
    title = f"{ranking.model_name} on {where}: best {len(ranking.routes)} of {ranking.scored} routes"
    screen.print(predictions_table(ranking.routes, title))
    interval = f"[{ranking.default_ms_low:.3g}, {ranking.default_ms_high:.3g}]"
    screen.print(
        f"default route: {ranking.default_ms:.3g} ms {interval}; cost model {ranking.cost_model}",
        markup=False,
    )
    for warning in ranking.warnings:
        screen.print(f"note: {warning}", markup=False)
    if route_file is not None:
        screen.print(f"written to {route_file}, the most promising knob last, as its tuner takes them", markup=False)


def _tuner_routes(model: Path, shapes: list[str] | None, backend: str, numerics: bool) -> tuple[Backend, list[Route]]:
    """The backend, and every route of one knob that its own tuner can set.

    Raises:
        UsageError: there is none.
    """
    from routecast.datasets.model import open_model
    from routecast.datasets.route import Route
    from routecast.tuner.backends.registry import get_backend
    from routecast.tuner.ranking import tuner_routes

    adapter = get_backend(backend)
    if not adapter.tuner_knobs:
        raise UsageError(f"--route-file is for backends with a tuner of their own, and {backend} has none")
    space = adapter.space(open_model(model, options.parse_shapes(shapes)), allow_numerics=numerics)
    routes = tuner_routes(space, Route(), adapter.tuner_knobs)
    if not routes:
        reason = space.left_out.get(adapter.tuner_knobs, "no knob of its compiler can matter to this model")
        raise UsageError(f"there is nothing to write to --route-file: {reason}")
    return adapter, routes


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
