"""Self-contained HTML reports: of a tune, and of predictions compared with a history."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from routecast.datasets.measurement import LocalTime, Measurement
from routecast.datasets.route import Route
from routecast.tuner import figures
from routecast.tuner.comparison import Comparison
from routecast.tuner.results import TuneResult
from routecast.tuner.sources import compare_result
from routecast.tuner.worth import setting_worth

if TYPE_CHECKING:
    from routecast.datasets.graph import Graph

_TEMPLATES = Path(__file__).parent / "templates"
_OPERATORS_SHOWN = 12
_FLAGS = {"timeout_s": "--timeout"}
"""Options of the command line that are not named as in ``TuneConfig``."""


@dataclass(frozen=True)
class OperatorTime:
    """Local time in ms of all layers of one operator type under two routes; None where a route has none."""

    op: str
    default_ms: float | None
    winner_ms: float | None


def write_report(result: TuneResult, graph: Graph | None, path: Path) -> Path:
    """Writes the report of a tune.

    Args:
        result: the tune's result.
        graph: the model's graph for its size, None when it is not at hand.
        path: the HTML file to write.

    Returns:
        ``path``.
    """
    comparison = compare_result(result)
    return _write(
        path,
        "tune.html",
        result=result,
        graph=graph,
        model=comparison.models[0] if comparison.models else None,
        figures=_all_figures(comparison),
        operators=_operators(result),
        confirmed=_confirmed(result),
        command=_command(result),
        snippet=_snippet(result),
    )


def write_comparison(comparison: Comparison, path: Path) -> Path:
    """Writes the report of a comparison and returns ``path``."""
    return _write(path, "comparison.html", comparison=comparison, figures=_all_figures(comparison))


def operator_times(default: Sequence[LocalTime], winner: Sequence[LocalTime]) -> list[OperatorTime]:
    """Sums two local profiles by operator type, the most expensive first."""
    sums: defaultdict[str, list[float | None]] = defaultdict(lambda: [None, None])
    for side, profile in enumerate((default, winner)):
        for layer in profile:
            sums[layer.op][side] = (sums[layer.op][side] or 0.0) + layer.ms
    rows = [OperatorTime(op, *times) for op, times in sums.items()]
    return sorted(rows, key=lambda row: -max(row.default_ms or 0.0, row.winner_ms or 0.0))


def _write(path: Path, template: str, **values: Any) -> Path:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    pages = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters.update(percent=percent, factor=factor, milliseconds=milliseconds, number=number)
    # The figures are the only text that is not escaped: matplotlib escaped the labels in them.
    values["figures"] = {name: Markup(figure) for name, figure in values["figures"].items()}  # noqa: S704
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(pages.get_template(template).render(**values), encoding="utf-8")
    return path


def _all_figures(comparison: Comparison) -> dict[str, str]:
    measurements = [pair.measurement for model in comparison.models for pair in model.pairs]
    drawn = figures.comparison_figures(comparison)
    if settings := setting_worth(measurements):
        drawn["worth"] = figures.worth(settings)
    return drawn


def _operators(result: TuneResult) -> list[OperatorTime]:
    winner = () if result.winner.is_default else _profile(result.measurements, result.winner)
    return operator_times(_profile(result.measurements, Route()), winner)[:_OPERATORS_SHOWN]


def _profile(measurements: Sequence[Measurement], route: Route) -> tuple[LocalTime, ...]:
    """The last local profile of a route, empty when it was never profiled."""
    profiles = [item.local_profile for item in measurements if item.route == route and item.local_profile]
    return profiles[-1] if profiles else ()


def _confirmed(result: TuneResult) -> Measurement | None:
    """The winner's last measurement, which holds its accuracy."""
    matching = [item for item in result.measurements if item.route == result.winner and item.ok]
    return matching[-1] if matching else None


def _command(result: TuneResult) -> str:
    """The command line that tunes the same model with the same options."""
    words = ["routecast", "tune", str(result.model_path)]
    for name, value in _changed_options(result).items():
        if name == "allow_numerics":
            words.append("--no-numerics")
        else:
            words += [_FLAGS.get(name, f"--{name.replace('_', '-')}"), str(value)]
    for name, sizes in result.settings["shapes"].items():
        words += ["--shapes", f"{name}:{'x'.join(map(str, sizes))}"]
    for name, (low, high) in result.settings["ranges"].items():
        words += ["--range", f"{name}:{low}:{high}"]
    for path in result.settings["inputs"]:
        words += ["--inputs", path]
    return shlex.join(words)


def _snippet(result: TuneResult) -> str:
    """The same through Python."""
    options = ", ".join(f"{name}={value!r}" for name, value in _changed_options(result).items())
    given = {name: result.settings[name] for name in ("shapes", "inputs", "ranges") if result.settings[name]}
    arguments = "".join(f", {name}={value!r}" for name, value in given.items())
    return f"""from routecast.tuner import TuneConfig, tune

config = TuneConfig({options})
result = tune({str(result.model_path)!r}{arguments}, config=config)
print(result.verdict, result.winner, result.artifact, sep="\\n")"""


def _changed_options(result: TuneResult) -> dict[str, Any]:
    """Options of the tune that differ from their default."""
    from routecast.tuner.tuning import TuneConfig

    default = vars(TuneConfig())
    return {name: result.settings[name] for name in default if result.settings[name] != default[name]}


def percent(value: float | None, digits: int = 1) -> str:
    """A share as a percentage, or a dash."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def factor(value: float | None) -> str:
    """A ratio, or a dash."""
    return "–" if value is None else f"{value:.3f}"


def milliseconds(value: float | None) -> str:
    """A time in ms with three significant digits, or a dash."""
    if value is None:
        return "–"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"


def number(value: float | None, digits: int = 2) -> str:
    """A plain number, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}"
