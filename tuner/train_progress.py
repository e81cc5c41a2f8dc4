"""Progress of training on a terminal, or line by line where there is none."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from routecast.training.config import TrainObserver
from routecast.tuner.progress import duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from routecast.training.trainer import TrainingResult

_LINES_PER_MEMBER = 5


class TrainProgress(TrainObserver):
    """On a terminal, one bar over all passes of all members; elsewhere a few lines per member."""

    def __init__(self, console: Console) -> None:
        """Takes where to print, usually stderr."""
        self._console = console
        self._bar: tuple[Progress, TaskID] | None = None
        self._members = self._epochs = 1
        self._began = 0.0

    def started(self, members: int, epochs: int, examples: int) -> None:
        """Shows the bar."""
        self._members, self._epochs, self._began = members, epochs, time.monotonic()
        self._console.print(f"training {members} networks on {examples} models, {epochs} passes each")
        if self._console.is_terminal:
            self._bar = self._start_bar(members * epochs)

    def epoch(self, member: int, epoch: int, losses: Mapping[str, float]) -> None:
        """Moves the bar, or prints a line now and then."""
        done, total = member * self._epochs + epoch + 1, self._members * self._epochs
        left = duration((time.monotonic() - self._began) / done * (total - done))
        rank = f"rank loss {losses['rank']:.3f}" if "rank" in losses else ""
        if self._bar:
            progress, task = self._bar
            progress.update(task, completed=done, text=f"network {member + 1}, {rank}, about {left} left")
        elif (epoch + 1) % max(1, self._epochs // _LINES_PER_MEMBER) == 0:
            self._console.print(
                f"[{done}/{total}] network {member + 1}: {rank}, about {left} left",
                markup=False,
                soft_wrap=True,
            )

    def finished(self, result: TrainingResult) -> None:
        """Takes the bar away."""
        self.close()

    def close(self) -> None:
        """Takes the bar away, also after an error."""
        if self._bar:
            self._bar[0].stop()
            self._bar = None

    def _start_bar(self, total: int) -> tuple[Progress, TaskID]:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}", markup=False),
        )
        progress = Progress(*columns, console=self._console, transient=True, refresh_per_second=2)
        task = progress.add_task("", total=total, text="")
        progress.start()
        return progress, task
