"""How figures are drawn: matplotlib's SVG with colours that the page decides.

Matplotlib draws with fixed colours; each stands for a CSS variable of the page (``--ink``, ``--muted``, ...)
and is replaced by it, so that one figure serves light and dark pages.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that no figure uses for themselves, by the CSS variable that takes their place.
COLOURS = {
    "ink": "#010203",
    "muted": "#040506",
    "line": "#070809",
    "accent": "#0a0b0c",
    "good": "#0d0e0f",
    "bad": "#101112",
}
_PIXELS_PER_POINT = 96 / 72


@contextmanager
def drawing(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """A figure of the given size in inches, drawn in the page's style."""
    import matplotlib
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "routecast",
        "text.parse_math": False,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 10,
        "legend.fontsize": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        **{f"{part}.facecolor": "none" for part in ("axes", "figure", "savefig")},
        **{f"{part}.color": COLOURS["muted"] for part in ("xtick", "ytick")},
        **{f"{part}.labelcolor": COLOURS["ink"] for part in ("axes", "xtick", "ytick", "legend")},
        "axes.edgecolor": COLOURS["muted"],
        "text.color": COLOURS["ink"],
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.add_subplot()


def svg(figure: Figure, prefix: str, title: str) -> str:
    """The figure as an ``svg`` element.

    It has no fixed size, takes its colours from CSS variables, and its identifiers start with ``prefix``, so
    that several figures can stand on one page. ``title`` is what a screen reader says.
    """
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    width = re.search(r'width="([\d.]+)pt"', text)
    assert width is not None
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    for variable, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{variable})")
    pixels = round(float(width.group(1)) * _PIXELS_PER_POINT)
    opening = f'<svg role="img" aria-label="{title}" style="width:{pixels}px;max-width:100%;height:auto"'
    return text.replace("<svg", opening, 1)


def log_axis(axes: Axes, which: Literal["x", "y"], low: float, high: float) -> None:
    """Gives an axis a logarithmic scale from ``low`` to ``high`` with plain numbers at round values."""
    from matplotlib.ticker import FuncFormatter, Locator, LogLocator, MaxNLocator, NullLocator

    axes.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})
    axis = axes.xaxis if which == "x" else axes.yaxis
    # Over less than a factor of 4, steps as on a linear axis are rounder than fractions of a decade.
    subs = (1, 2, 3, 5, 7) if high / low < 30 else (1, 2, 5) if high / low < 300 else (1,)
    locator: Locator = MaxNLocator(8, steps=(1, 2, 5, 10)) if high / low < 4 else LogLocator(subs=subs)
    axis.set_major_locator(locator)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def rows_axis(axes: Axes, labels: Sequence[str]) -> None:
    """Labels the rows 0, 1, ... from top to bottom."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def legend_above(axes: Axes) -> None:
    """Puts the legend in one line above the axes."""
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)


def shorten(text: str, limit: int = 44) -> str:
    """The text, its middle left out when it is longer than ``limit`` characters."""
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[:half]}…{text[-half:]}"
