"""``routecast knobs``: the route space of a model."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from routecast.tuner.cli import options

if TYPE_CHECKING:
    from routecast.datasets.route import RouteSpace


def knobs(
    model: options.ModelArgument,
    shapes: options.ShapesOption = None,
    backend: options.BackendOption = "onnxruntime",
    numerics: options.NumericsOption = True,
    json: options.JsonOption = False,
) -> None:
    """Show the knobs that can matter to MODEL, and which were left out and why."""
    from routecast.datasets.model import open_model
    from routecast.tuner.backends.registry import get_backend
    from routecast.tuner.cli.output import print_json

    opened = open_model(model, options.parse_shapes(shapes))
    space = get_backend(backend).space(opened, allow_numerics=numerics)
    if json:
        listed = [{**asdict(knob), "requires": dict(knob.requires)} for knob in space.knobs]
        print_json({"model": opened.name, "routes": space.size, "knobs": listed, "left_out": dict(space.left_out)})
    else:
        _show(opened.name, space)


def _show(name: str, space: RouteSpace) -> None:
    from routecast.tuner.cli.output import console, table

    screen = console()
    rows = [
        (
            knob.name,
            " ".join(f"({value})" if value == knob.default else value for value in knob.values),
            knob.help + (" (may change results)" if knob.changes_numerics else ""),
        )
        for knob in space.knobs
    ]
    title = f"{name}: {len(space.knobs)} knobs, {_size(space.size)} routes"
    columns = ("knob", "values (default)", "what it does")
    screen.print(table(columns, rows, title=title, text=columns))
    if space.left_out:
        left_out = list(space.left_out.items())
        screen.print(table(("left out", "because"), left_out, text=("left out", "because")))


def _size(size: int) -> str:
    return f"{size:,}" if size < 1e9 else f"{size:.1e}"
