"""How large what is stored in a history may be, so that one worker cannot fill the database of a fleet.

The limits are several times what real models reach: of the shipped history's 2,666 measurements the largest has
146 kB and 1,392 layers, and the largest graph has 274 kB. The database enforces all but the number of layers and the
length of a message too, which are inside the content there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from routecast.datasets.errors import UsageError
from routecast.datasets.measurement import Measurement

CONTENT_BYTES = {"graphs": 64 << 20, "environments": 64 << 10, "measurements": 8 << 20}
"""Largest content of a row of each table, as JSON."""

COLUMN_BYTES = {
    "identity": 128, "fingerprint": 128, "environment": 128, "run": 128, "status": 32, "created": 64,
    "family": 256, "model": 1024, "route": 64 << 10,
}  # fmt: skip
"""Longest text of each other column, in UTF-8."""

LAYERS = 50_000
"""Most layers of a local profile."""

MESSAGE_CHARACTERS = 10_000
"""Longest message of a measurement."""


def check_row(table: str, row: Mapping[str, Any]) -> None:
    """Checks that a row may be stored.

    Raises:
        UsageError: it is larger than allowed, or holds characters that a database does not store.
    """
    limits = {"content": CONTENT_BYTES[table], **COLUMN_BYTES}
    for name, value in row.items():
        if name not in limits or not isinstance(value, str):
            continue
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            size = -1
        if size < 0 or "\0" in value:
            raise UsageError(f"the {name} of a row of {table} holds characters that are no text: {value[:80]!r}")
        if size > limits[name]:
            raise UsageError(
                f"the {name} of a row of {table} has {size:,} bytes, a history takes {limits[name]:,}; {_whose(row)}"
            )


def check_measurement(measurement: Measurement) -> None:
    """Checks the parts of a measurement.

    Raises:
        UsageError: its local profile or its message is longer than allowed.
    """
    layers, characters = len(measurement.local_profile), len(measurement.message)
    whose = f"measurement {measurement.identity[:80]} of {measurement.model[:80]}"
    if layers > LAYERS:
        raise UsageError(f"{whose} has a local profile of {layers:,} layers, a history takes {LAYERS:,}")
    if characters > MESSAGE_CHARACTERS:
        raise UsageError(
            f"{whose} has a message of {characters:,} characters, a history takes {MESSAGE_CHARACTERS:,}: shorten it"
        )


def _whose(row: Mapping[str, Any]) -> str:
    return f"it is {str(row.get('identity') or row.get('fingerprint'))[:80]!r}"
