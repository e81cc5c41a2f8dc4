"""Progress of a tune or a collection on a terminal, or line by line where there is none."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from routecast.datasets.measurement import Measurement
from routecast.tuner.results import Observer, RoutePrediction

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

# Redrawing takes CPU time from what is being measured, so it is rare.
_REDRAWS_PER_SECOND = 1


class TerminalProgress(Observer):
    """Prints a line per measured route; on a terminal, a bar below shows stage, best so far and time left."""

    def __init__(self, console: Console, *, several_models: bool = False) -> None:
        """Takes where to print, usually stderr, and whether lines must say which model they are about."""
        self._console = console
        self._several_models = several_models
        self._bar: tuple[Progress, TaskID] | None = None
        self._began = 0.0
        self._first: int | None = None

    def started(self, total: int) -> None:
        """Shows the bar."""
        self._began, self._first = time.monotonic(), None
        if self._console.is_terminal:
            self._bar = self._start_bar(total)

    def stage(self, text: str) -> None:
        """Shows the stage beside the bar; without a bar, ``measured`` says enough."""
        if self._bar:
            progress, task = self._bar
            progress.update(task, stage=text)

    def note(self, text: str) -> None:
        """Prints it, above the bar where there is one."""
        self._console.print(f"note: {text}", markup=False, soft_wrap=not self._console.is_terminal)

    def measured(
        self,
        measurement: Measurement,
        prediction: RoutePrediction | None,
        best: Measurement | None,
        done: int,
        total: int,
    ) -> None:
        """Prints a line about the route and moves the bar."""
        left = self._left(done, total)
        # Where there is no terminal, a line of the log is a route.
        model = f"{measurement.model} " if self._several_models else ""
        unwrapped = not self._console.is_terminal
        self._console.print(model + describe(measurement, prediction, done, total), markup=False, soft_wrap=unwrapped)
        best_text = (
            "best so far: default" if best is None or (best.ratio or 1) >= 1 else f"best so far: {best.ratio:.3f}"
        )
        if self._bar:
            progress, task = self._bar
            progress.update(task, completed=done, total=total, best=best_text, left=left)
        else:
            self._console.print(f"    {best_text}{left and ', '}{left}", markup=False)

    def finished(self) -> None:
        """Takes the bar away."""
        if self._bar:
            self._bar[0].stop()
            self._bar = None

    def _start_bar(self, total: int) -> tuple[Progress, TaskID]:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        # Fields are shown as plain text: routes and model names are no markup.
        columns = [
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            *(TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in ("best", "left", "stage")),
        ]
        progress = Progress(*columns, console=self._console, transient=True, refresh_per_second=_REDRAWS_PER_SECOND)
        task = progress.add_task("", total=total, best="", left="", stage="")
        progress.start()
        return progress, task

    def _left(self, done: int, total: int) -> str:
        """Time left to explore at the pace of this run; a resumed run began with some routes done."""
        if self._first is None:
            self._first = done - 1
        if done >= total:
            return ""
        pace = (time.monotonic() - self._began) / (done - self._first)
        return f"about {duration(pace * (total - done))} left"


def describe(measurement: Measurement, prediction: RoutePrediction | None, done: int, total: int) -> str:
    """One line about a measured route."""
    if measurement.ok and measurement.ratio is not None:
        found = f"{measurement.ratio:.3f}"
        if measurement.ratio_low is not None and measurement.ratio_high is not None:
            found += f" [{measurement.ratio_low:.3f}, {measurement.ratio_high:.3f}]"
    else:
        found = measurement.status.replace("_", " ")
        found += f" ({measurement.message})" if measurement.message else ""
    said = f", predicted {prediction.ratio:.3f}" if prediction else ""
    return f"[{done}/{total}] {measurement.route.label()}: {found}{said}"


def duration(seconds: float) -> str:
    """A duration for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
