"""Tables of routes and models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from routecast.tuner.cli.output import table

if TYPE_CHECKING:
    from rich.table import Table

    from routecast.datasets.route import Route
    from routecast.tuner.compare import ModelComparison, Pair
    from routecast.tuner.results import RoutePrediction


def routes_table(model: ModelComparison, winner: Route | None = None) -> Table:
    """Predicted against measured latency of each route, the winner marked."""
    columns = ("route", "status", "predicted", "measured", "pred. ms", "meas. ms", "loss")
    rows = [_pair_row(pair, winner) for pair in model.pairs]
    return table(columns, rows, title=f"{model.model}: latency relative to the default route", text=("route",))


def _pair_row(pair: Pair, winner: Route | None) -> Sequence[str]:
    measured, prediction = pair.measurement, pair.prediction
    mark = "* " if winner is not None and measured.route == winner else ""
    losses = " ".join(f"{metric} {loss:.1e}" for metric, loss in measured.accuracy.items())
    return (
        mark + measured.route.label(),
        measured.status.replace("_", " "),
        ratio(prediction.ratio, prediction.ratio_low, prediction.ratio_high) if prediction else "-",
        ratio(measured.ratio, measured.ratio_low, measured.ratio_high),
        number(prediction.latency_ms, 3) if prediction else "-",
        number(measured.latency_ms, 3),
        losses or "-",
    )


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


def models_table(models: Sequence[ModelComparison]) -> Table:
    """How good the predictions of each model were, and what each way of choosing lost."""
    columns = (
        "model", "family", "routes", "failed", "ratio error", "ms error", "Spearman", "coverage", "pruning loss",
        "selection loss", "first choice", "gap",
    )  # fmt: skip
    rows = [
        (
            model.model,
            model.family,
            str(model.scores.routes),
            str(model.failed),
            percent(model.scores.ratio_error),
            percent(model.scores.latency_error),
            number(model.scores.spearman, 2),
            percent(model.scores.coverage),
            percent(model.pruning_loss),
            percent(model.selection_loss),
            percent(model.first_choice_loss),
            number(model.gap, 3),
        )
        for model in models
    ]
    return table(columns, rows, text=("model", "family"))


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
