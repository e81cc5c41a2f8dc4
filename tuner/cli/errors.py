"""How every command ends when it fails: one line on stderr and an exit status."""

from __future__ import annotations

import errno
import os
import traceback

import typer
from typer.core import TyperGroup

from routecast.datasets.errors import RoutecastError

_INTERRUPTED = 130
_KEPT = "routecast.kept"


def say_if_interrupted(context: typer.Context, line: str) -> None:
    """Sets what is said after an interruption: what was kept and how to go on."""
    context.meta[_KEPT] = line


class GuardedGroup(TyperGroup):
    """The root of the command line, which turns what a command raises into one line and an exit status.

    The line starts with ``error:``; ``--debug`` shows the traceback before it. An interruption ends with 130.
    """

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo(f"interrupted: {ctx.meta.get(_KEPT, 'nothing was kept')}", err=True)
            raise typer.Exit(_INTERRUPTED) from None
        except Exception as error:
            # Typer's own exceptions (a wrong option, a regular exit) carry their status; Typer shows them.
            if hasattr(error, "exit_code") or isinstance(error, BrokenPipeError):
                raise
            if ctx.params.get("debug"):
                traceback.print_exc()
            typer.echo(f"error: {explain(error)}", err=True)
            raise typer.Exit(error.exit_status if isinstance(error, RoutecastError) else 1) from None


def explain(error: Exception) -> str:
    """One line about an error: what went wrong and what to do next."""
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, RoutecastError):
        return text
    if isinstance(error, MemoryError):
        return "out of memory: close other programs, or use a smaller model, pool or batch"
    if isinstance(error, OSError):
        return _explain_system(error)
    if type(error).__module__.startswith("sqlalchemy"):
        return _explain_database(text)
    return f"unexpected {type(error).__name__}: {text}; please report it with what `routecast --debug ...` shows"


def _explain_system(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left on the disk{where}: free some, or give another --output; what was stored is kept"
    return f"{os.strerror(error.errno) if error.errno else error}{where}"


def _explain_database(text: str) -> str:
    if "database is locked" in text:
        return "the history is locked by another process: wait until it ends, or give another --history"
    if "database or disk is full" in text:
        return "no space left on the disk for the history: free some; what was stored is kept"
    first = text.split("[SQL:", maxsplit=1)[0].strip()
    return f"the history's database failed: {first}"
