"""One model in one environment out of a history."""

from __future__ import annotations

from collections.abc import Mapping

from routecast.datasets.errors import UsageError
from routecast.datasets.records import Records

_SHOWN = 8


def select(records: Records, model: str = "", device: str = "") -> Records:
    """The measurements of one model in one environment.

    Args:
        records: the history.
        model: name or fingerprint; may be empty when the history holds one model.
        device: name of the device or identity of the environment; may be empty when there is one for that model.

    Raises:
        UsageError: none or several match.
    """
    models = {
        measurement.fingerprint: measurement.model
        for measurement in records.measurements
        if model in ("", measurement.model, measurement.fingerprint)
    }
    fingerprint = _only(models, "model", model)
    places = {
        measurement.environment: _place(records, measurement.environment)
        for measurement in records.measurements
        if measurement.fingerprint == fingerprint
    }
    known = {
        key: said
        for key, said in places.items()
        if device in ("", key) or (key in records.environments and records.environments[key].device == device)
    }
    environment = _only(known, "device", device)
    return records.filtered(
        lambda measurement: measurement.fingerprint == fingerprint and measurement.environment == environment
    )


def _place(records: Records, identity: str) -> str:
    environment = records.environments.get(identity)
    return f"{environment.backend} on {environment.device}" if environment else "environment not stored"


def _only(found: Mapping[str, str], what: str, wanted: str) -> str:
    if not found:
        raise UsageError(f"the history holds no measurement of {what} {wanted!r}" if wanted else "the history is empty")
    if len(found) > 1:
        listed = ", ".join(f"{key} ({said})" for key, said in list(found.items())[:_SHOWN])
        more = "" if len(found) <= _SHOWN else f" and {len(found) - _SHOWN} more"
        raise UsageError(f"several match, name one with --{what}: {listed}{more}")
    return next(iter(found))
