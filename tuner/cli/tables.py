"""Tables of routes and models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from routecast.tuner.cli.output import table

if TYPE_CHECKING:
    from rich.table import Table

    from routecast.datasets.route import Route
    from routecast.tuner.comparison import ModelComparison, Pair
    from routecast.tuner.results import RoutePrediction


_NARROW = 110
_NARROW_COLUMNS = (0, 2, 4, 6, 7, 8, 9)


def routes_table(model: ModelComparison, width: int, winner: Route | None = None, metric: str = "cos") -> Table:
    """Predicted against measured latency of each route, the winner marked; narrow screens get two lines."""
    columns = ("route", "status", "predicted", "measured", f"{metric} loss")
    rows = [_pair_row(pair, " " if width >= _NARROW else "\n", winner, metric) for pair in model.pairs]
    title = f"{model.model}: latency in ms and relative to the default route"
    return table(columns, rows, title=title, text=("route",))


def _pair_row(pair: Pair, separator: str, winner: Route | None, metric: str) -> Sequence[str]:
    measured, prediction = pair.measurement, pair.prediction
    mark = "* " if winner is not None and measured.route == winner else ""
    loss = measured.accuracy.get(metric)
    predicted = "-"
    if prediction is not None:
        interval = ratio(prediction.ratio, prediction.ratio_low, prediction.ratio_high)
        predicted = f"{number(prediction.latency_ms, 3)} ms{separator}{interval}"
    found = "-"
    if measured.ratio is not None:
        interval = ratio(measured.ratio, measured.ratio_low, measured.ratio_high)
        found = f"{number(measured.latency_ms, 3)} ms{separator}{interval}"
    return mark + measured.route.label(), measured.status.replace("_", " "), predicted, found, number(loss, 2)


def predictions_table(predictions: Sequence[RoutePrediction], title: str) -> Table:
    """Routes by predicted latency."""
    rows = [
        (
            str(rank),
            item.route.label(),
            ratio(item.ratio, item.ratio_low, item.ratio_high),
            number(item.latency_ms, 3),
            percent(item.failure),
        )
        for rank, item in enumerate(predictions, 1)
    ]
    return table(("#", "route", "ratio", "ms", "may fail"), rows, title=title, text=("route",))


def models_table(models: Sequence[ModelComparison], width: int) -> Table:
    """How good predictions were of each model, and what each way of choosing lost; less on narrow screens."""
    found = (
        "ratio error",
        "ms error",
        "Spear- man",
        "cover- age",
        "pruning loss",
        "select. loss",
        "1st choice",
        "gap",
    )
    columns = ("model", "family", "routes", "failed", *(name.replace(" ", "\n") for name in found))
    rows = [
        (
            model.model,
            model.family,
            str(model.scores.routes),
            str(model.failed),
            *(text for _, text in figures(model)),
        )
        for model in models
    ]
    shown = range(len(columns)) if width >= _NARROW else _NARROW_COLUMNS
    return table(
        [columns[index] for index in shown],
        [[row[index] for index in shown] for row in rows],
        text=("model", "family"),
    )


def figures(model: ModelComparison) -> list[tuple[str, str]]:
    """What the comparison of one model found: name and text."""
    return [
        ("median error of the ratio", percent(model.scores.ratio_error)),
        ("median error of the latency", percent(model.scores.latency_error)),
        ("Spearman's rank correlation", number(model.scores.spearman, 2)),
        ("ratios inside their interval", percent(model.scores.coverage)),
        ("pruning loss (default over fastest)", percent(model.pruning_loss)),
        ("selection loss (smallest local sum)", percent(model.selection_loss)),
        ("first choice (predicted fastest)", percent(model.first_choice_loss)),
        ("gap (end-to-end over local sum)", number(model.gap, 3)),
    ]


def ratio(value: float | None, low: float | None, high: float | None) -> str:
    """A ratio with its interval."""
    if value is None:
        return "-"
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def number(value: float | None, digits: int) -> str:
    """A number with so many significant digits, or a dash."""
    return "-" if value is None else f"{value:.{digits}g}"


def percent(value: float | None) -> str:
    """A share as a percentage, or a dash."""
    return "-" if value is None else f"{100 * value:.1f} %"
