"""What one route did once on one device."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from routecast.datasets.route import Route


class Status(StrEnum):
    """How measuring a route ended."""

    OK = "ok"
    BUILD_FAILED = "build_failed"
    LOAD_FAILED = "load_failed"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    INACCURATE = "inaccurate"


class Purpose(StrEnum):
    """Why a route was measured.

    ``control`` is the A/A control: the default route measured against itself. ``confirm`` is the rebuilt, longer
    measurement that a win needs.
    """

    EXPLORE = "explore"
    CONTROL = "control"
    CONFIRM = "confirm"


@dataclass(frozen=True)
class LocalTime:
    """Time of one layer or kernel as the backend's own profiler reports it.

    Attributes:
        name: the backend's name of the layer.
        op: operator type or kernel kind.
        ms: time per inference, in ms.
        node: index into ``Graph.nodes`` when the layer is one of them, else -1.
    """

    name: str
    op: str
    ms: float
    node: int = -1


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Measurement:
    """One route measured once. Times are in ms unless the name says seconds.

    Attributes:
        fingerprint: of the model's graph.
        route: what was built, canonical.
        environment: identity of the environment (``Environment.identity``).
        status: how it ended; everything timed may be absent unless it is ``ok`` or ``inaccurate``.
        model: name of the model, for people.
        family: architecture family, ``unknown`` when nobody said.
        purpose: why it was measured.
        latency_ms: median over blocks of the median end-to-end latency.
        default_ms: the same for the default route measured beside it, in the same process.
        ratio: median paired ratio of the route's latency to the default's; below 1 is faster.
        ratio_low, ratio_high: 95 % bootstrap interval of ``ratio``.
        blocks_ms, default_blocks_ms: the paired block medians themselves.
        accuracy: worst loss by metric name over all outputs and input sets.
        build_seconds, load_seconds: time to build the artifact and to load it.
        engine_bytes: size of the artifact.
        engine_hash: SHA-256 of the artifact, hexadecimal.
        peak_bytes: peak resident memory of the measuring process.
        device_state: the device while it was timed, by name with the unit in it (``sm_clock_mhz``, ``temperature_c``,
            ``throttle_reasons``); empty when the backend does not tell.
        local_profile: time per layer; empty when not profiled.
        message: what went wrong, one line, empty when nothing did.
        created: ISO 8601 time in UTC.
        run: identity of the tune or collection that measured it.
        identity: of this measurement; storing it twice stores it once.
    """

    fingerprint: str
    route: Route
    environment: str
    status: Status
    model: str = ""
    family: str = "unknown"
    purpose: Purpose = Purpose.EXPLORE
    latency_ms: float | None = None
    default_ms: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    blocks_ms: tuple[float, ...] = ()
    default_blocks_ms: tuple[float, ...] = ()
    accuracy: Mapping[str, float] = field(default_factory=dict)
    build_seconds: float | None = None
    load_seconds: float | None = None
    engine_bytes: int | None = None
    engine_hash: str = ""
    peak_bytes: int | None = None
    device_state: Mapping[str, float] = field(default_factory=dict)
    local_profile: tuple[LocalTime, ...] = ()
    message: str = ""
    created: str = field(default_factory=_now)
    run: str = ""
    identity: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def ok(self) -> bool:
        """Whether it was built, timed and accurate."""
        return self.status is Status.OK

    @property
    def log_ratio(self) -> float:
        """Natural logarithm of ``ratio``; negative is faster.

        Raises:
            ValueError: the route was not timed.
        """
        if self.ratio is None:
            raise ValueError(f"route {self.route.label()} has no ratio: its status is {self.status}")
        return math.log(self.ratio)

    @property
    def local_sum_ms(self) -> float | None:
        """Sum of the local profile in ms, None when it was not profiled."""
        return sum(layer.ms for layer in self.local_profile) if self.local_profile else None

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form, which ``from_json`` reads."""
        # Not ``asdict``, which copies a route part by part and takes ten times as long.
        return {
            **vars(self),
            "route": str(self.route),
            "accuracy": dict(self.accuracy),
            "device_state": dict(self.device_state),
            "local_profile": tuple(dict(vars(layer)) for layer in self.local_profile),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """Reads what ``to_json`` wrote; keys it does not know are ignored."""
        known = {item.name for item in fields(cls)}
        values = {name: value for name, value in data.items() if name in known}
        values["route"] = Route.parse(values["route"])
        values["status"] = Status(values["status"])
        values["purpose"] = Purpose(values.get("purpose", Purpose.EXPLORE))
        values["local_profile"] = tuple(LocalTime(**layer) for layer in values.get("local_profile", ()))
        for name in ("blocks_ms", "default_blocks_ms"):
            values[name] = tuple(values.get(name, ()))
        return cls(**values)
