"""The exceptions of routecast: one root, and one line a user can act on in each message."""

from __future__ import annotations


class RoutecastError(Exception):
    """Work that failed. The message says what was wrong, what was got and what to do next.

    Attributes:
        exit_status: what the command line exits with when this error ends it.
    """

    exit_status = 1


class UsageError(RoutecastError):
    """The request itself cannot be met: a missing file, a broken model, an impossible option."""

    exit_status = 2


class MissingPackage(RoutecastError):
    """An optional package is needed and absent."""

    def __init__(self, package: str, purpose: str, extra: str | None = None) -> None:
        """Says which package ``purpose`` needs and how to install it (``extra`` names routecast's own extra)."""
        target = f"'routecast[{extra}]'" if extra else package
        super().__init__(f"{purpose} needs the package {package}, which is not installed: pip install {target}")
