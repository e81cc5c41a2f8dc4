"""``routecast doctor``: what works here."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from routecast.tuner.cli import options

if TYPE_CHECKING:
    from routecast.tuner.doctor import Section


def doctor(history: options.HistoryOption = None, json: options.JsonOption = False) -> None:
    """Say what works here, what does not and why, and what to install. Exits with 1 when no backend works."""
    from routecast.tuner.cli.output import print_json
    from routecast.tuner.doctor import examine

    sections = examine(history)
    if json:
        print_json([{**asdict(section), "ok": section.ok} for section in sections])
    else:
        _show(sections)
    if not any(section.ok for section in sections if section.title.startswith("backend ")):
        raise typer.Exit(1)


def _show(sections: list[Section]) -> None:
    from rich.text import Text

    from routecast.tuner.cli.output import console

    screen = console()
    for section in sections:
        screen.print(Text(section.title, style="bold"))
        for check in section.checks:
            mark = ("ok", "green") if check.ok else ("--", "yellow") if section.optional else ("no", "red")
            line = Text.assemble("  ", (f"{mark[0]:<3}", mark[1]), f"{check.what}: {check.detail}")
            screen.print(line, soft_wrap=True)
            if check.fix and not check.ok:
                screen.print(Text(f"     -> {check.fix}"), soft_wrap=True)
