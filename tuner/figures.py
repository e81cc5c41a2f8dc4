"""The figures of the reports, each an ``svg`` element that takes its colours from the page."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from routecast.tuner.comparison import Comparison, ModelComparison, Pair
from routecast.tuner.drawing import COLOURS, drawing, legend_above, log_axis, rows_axis, shorten, svg
from routecast.tuner.worth import SettingWorth

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DRAWN_POINTS = 1500
_POINTS_WITH_INTERVALS = 300
_ROWS = 24


def predicted_measured(pairs: Sequence[Pair]) -> str:
    """Measured against predicted ratio, one point per route; with both intervals unless they are too many."""
    scored = _sample([pair for pair in pairs if pair.scored and pair.prediction])
    with drawing(5.2, 4.6) as (figure, axes):
        for inside, colour, label in ((True, "accent", "inside its interval"), (False, "bad", "outside")):
            chosen = [pair for pair in scored if pair.covered is inside]
            if chosen:
                _cross(axes, chosen, COLOURS[colour], label, intervals=len(scored) <= _POINTS_WITH_INTERVALS)
        low, high = _bounds([value for pair in scored for value in _ratios(pair)])
        axes.plot([low, high], [low, high], color=COLOURS["muted"], linewidth=1, zorder=1)
        for draw in (axes.axvline, axes.axhline):
            draw(1, color=COLOURS["line"], linewidth=1, zorder=0)
        log_axis(axes, "x", low, high)
        log_axis(axes, "y", low, high)
        axes.set_xlabel("predicted latency / default")
        axes.set_ylabel("measured latency / default")
        axes.legend(frameon=False, loc="upper left")
        return svg(figure, "predicted", "Measured against predicted latency ratio")


def ranking(pairs: Sequence[Pair]) -> str:
    """Routes from fastest to slowest: measured ratio with its interval above the predicted one."""
    shown = [pair for pair in pairs if pair.scored and pair.prediction][:_ROWS]
    with drawing(7.6, 1.0 + 0.34 * len(shown)) as (figure, axes):
        for row, pair in enumerate(shown):
            measured, prediction = pair.measurement, pair.prediction
            assert prediction is not None and measured.ratio is not None
            axes.plot(
                [prediction.ratio_low, prediction.ratio_high],
                [row, row],
                color=COLOURS["line"],
                linewidth=7,
                solid_capstyle="round",
                zorder=1,
                label="predicted, with interval" if row == 0 else None,
            )
            axes.plot([prediction.ratio], [row], "|", color=COLOURS["muted"], markersize=10, markeredgewidth=2)
            axes.errorbar(
                [measured.ratio],
                [row],
                xerr=_error(measured.ratio, measured.ratio_low, measured.ratio_high),
                fmt="o",
                color=COLOURS["accent" if pair.covered else "bad"],
                markersize=5,
                zorder=3,
                label="measured, with interval" if row == 0 else None,
            )
        axes.axvline(1, color=COLOURS["muted"], linewidth=1, linestyle=(0, (3, 3)), zorder=0)
        low, high = _row_bounds(shown)
        rows_axis(axes, [shorten(pair.measurement.route.label()) for pair in shown])
        log_axis(axes, "x", low, high)
        axes.set_xlabel("latency / default (left is faster)")
        legend_above(axes)
        return svg(figure, "ranking", "Routes from fastest to slowest")


def first_choices(models: Sequence[ModelComparison]) -> str:
    """Per model, the best measured ratio beside that of the route predicted fastest."""
    shown = sorted(
        (model for model in models if model.best and model.first_choice_loss is not None),
        key=lambda model: model.best.measurement.ratio or 1.0 if model.best else 1.0,
    )[:_ROWS]
    with drawing(7.6, 1.0 + 0.34 * len(shown)) as (figure, axes):
        for row, model in enumerate(shown):
            best = min(_ratios(pair)[1] for pair in model.pairs if pair.scored)
            chosen = best * (1 + (model.first_choice_loss or 0))
            axes.plot([best, chosen], [row, row], color=COLOURS["line"], linewidth=3, zorder=1)
            axes.plot(
                [chosen],
                [row],
                "D",
                color=COLOURS["bad"],
                markersize=5,
                zorder=2,
                label=_once(row, "predicted fastest"),
            )
            axes.plot(
                [best],
                [row],
                "o",
                color=COLOURS["accent"],
                markersize=6,
                zorder=3,
                label=_once(row, "measured fastest"),
            )
        axes.axvline(1, color=COLOURS["muted"], linewidth=1, linestyle=(0, (3, 3)), zorder=0)
        rows_axis(axes, [shorten(model.model) for model in shown])
        axes.set_xlabel("latency / default (left is faster)")
        legend_above(axes)
        return svg(figure, "choices", "First choice against best route")


def local_sums(pairs: Sequence[Pair]) -> str:
    """End-to-end latency against the sum of local times, one point per profiled route."""
    profiled = _sample([pair for pair in pairs if pair.measurement.ok and pair.measurement.local_sum_ms])
    with drawing(5.2, 4.6) as (figure, axes):
        sums = [pair.measurement.local_sum_ms or 0.0 for pair in profiled]
        totals = [pair.measurement.latency_ms or 0.0 for pair in profiled]
        low, high = _bounds([*sums, *totals])
        axes.plot([low, high], [low, high], color=COLOURS["muted"], linewidth=1, zorder=1, label="no gap")
        axes.plot(sums, totals, "o", color=COLOURS["accent"], alpha=0.75, markersize=5, markeredgewidth=0)
        log_axis(axes, "x", low, high)
        log_axis(axes, "y", low, high)
        axes.set_xlabel("sum of local times, ms")
        axes.set_ylabel("end-to-end latency, ms")
        axes.legend(frameon=False, loc="lower right")
        return svg(figure, "local", "End-to-end latency against sum of local times")


def worth(settings: Sequence[SettingWorth]) -> str:
    """What each setting was worth, with its interval: the clear ones first."""
    shown = sorted(
        sorted(settings, key=lambda item: (not item.clear, -abs(math.log(item.ratio))))[:_ROWS],
        key=lambda item: item.ratio,
    )
    with drawing(7.6, 1.0 + 0.3 * len(shown)) as (figure, axes):
        for row, item in enumerate(shown):
            colour = ("good" if item.ratio < 1 else "bad") if item.clear else "muted"
            axes.errorbar(
                [_percent(item.ratio)],
                [row],
                xerr=[
                    [_percent(item.ratio) - _percent(item.ratio_low)],
                    [_percent(item.ratio_high) - _percent(item.ratio)],
                ],
                fmt="o",
                color=COLOURS[colour],
                markersize=5,
            )
        axes.axvline(0, color=COLOURS["muted"], linewidth=1, linestyle=(0, (3, 3)), zorder=0)
        rows_axis(axes, [f"{shorten(item.setting)}  ({item.routes})" for item in shown])
        axes.set_xlabel("change of latency, % (left is faster)")
        return svg(figure, "worth", "What each setting was worth")


def comparison_figures(comparison: Comparison) -> dict[str, str]:
    """The figures that a comparison has data for, by name."""
    pairs = [pair for model in comparison.models for pair in model.pairs]
    figures: dict[str, str] = {}
    if any(pair.scored for pair in pairs):
        figures["predicted"] = predicted_measured(pairs)
        if len(comparison.models) == 1:
            figures["ranking"] = ranking(pairs)
    if len(comparison.models) > 1 and any(model.first_choice_loss is not None for model in comparison.models):
        figures["choices"] = first_choices(comparison.models)
    if any(pair.measurement.ok and pair.measurement.local_sum_ms for pair in pairs):
        figures["local"] = local_sums(pairs)
    return figures


def _cross(axes: Axes, pairs: Sequence[Pair], colour: str, label: str, *, intervals: bool) -> None:
    predicted = [_ratios(pair)[0] for pair in pairs]
    measured = [_ratios(pair)[1] for pair in pairs]
    axes.plot(
        predicted,
        measured,
        "o",
        color=colour,
        alpha=0.8,
        markersize=5,
        markeredgewidth=0,
        label=label,
        zorder=3,
    )
    if not intervals:
        return
    for pair in pairs:
        prediction, row = pair.prediction, pair.measurement
        assert prediction is not None and row.ratio is not None
        axes.errorbar(
            [prediction.ratio],
            [row.ratio],
            xerr=_error(prediction.ratio, prediction.ratio_low, prediction.ratio_high),
            yerr=_error(row.ratio, row.ratio_low, row.ratio_high),
            fmt="none",
            ecolor=colour,
            elinewidth=1,
            alpha=0.35,
            zorder=2,
        )


def _ratios(pair: Pair) -> tuple[float, float]:
    assert pair.prediction is not None and pair.measurement.ratio is not None
    return pair.prediction.ratio, pair.measurement.ratio


def _error(middle: float, low: float | None, high: float | None) -> list[list[float]]:
    return [
        [max(0.0, middle - (middle if low is None else low))],
        [max(0.0, (middle if high is None else high) - middle)],
    ]


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    positive = [value for value in values if value > 0]
    low, high = min(positive, default=0.9), max(positive, default=1.1)
    margin = max(1.05, (high / low) ** 0.08)
    return low / margin, high * margin


def _row_bounds(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Bounds that show whole intervals, unless one is so wide that the points would shrink to nothing."""
    points = [1.0, *(value for pair in pairs for value in _ratios(pair))]
    ends = [end for pair in pairs if pair.prediction for end in (pair.prediction.ratio_low, pair.prediction.ratio_high)]
    low, high = min(points), max(points)
    return _bounds([low, high, max(min(ends, default=low), low / 1.5), min(max(ends, default=high), 1.5 * high)])


def _sample(pairs: list[Pair]) -> list[Pair]:
    """At most as many points as a page can hold, drawn evenly at random."""
    return pairs if len(pairs) <= _DRAWN_POINTS else random.Random(0).sample(pairs, _DRAWN_POINTS)  # noqa: S311


def _percent(ratio: float) -> float:
    return 100 * (ratio - 1)


def _once(row: int, label: str) -> str | None:
    return label if row == 0 else None
