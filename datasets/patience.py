"""Waiting for a server that went away, such as one that restarts, instead of failing at once."""

from __future__ import annotations

import random
import time

from sqlalchemy.exc import DBAPIError

from routecast.datasets.database_errors import passes

PATIENCE_SECONDS = 60.0
"""How long a process that was connected waits for its server."""

OPENING_SECONDS = 10.0
"""How long a process waits for a server that it has not met yet: it may be there under another name."""


class Patience:
    """Waits longer and longer between tries, for some seconds in all."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Starts anew, after something went well."""
        self._until = time.monotonic() + self._seconds
        self._pause = 0.05

    def wait(self, error: DBAPIError) -> None:
        """Waits before the next try.

        Raises:
            DBAPIError: the error, when it will not pass or the time is up.
        """
        if not passes(error) or time.monotonic() > self._until:
            raise error
        # Drawn, so that the workers of a fleet do not all come back at the same moment.
        time.sleep(self._pause * random.uniform(0.5, 1.5))  # noqa: S311
        self._pause = min(2 * self._pause, 2.0)
