"""The driver's checks of what workers send: nothing is stored that was not asked for.

Ray itself trusts everybody who can join a cluster, so these checks guard against broken or outdated workers rather than
against hostile ones: run Ray in a network that only its machines can reach.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from routecast.datasets.environment import Environment
from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.measurement import Measurement
from routecast.datasets.route import Knob, RouteSpace
from routecast.datasets.sizes import check_measurement
from routecast.tuner.fleet.bundle import ARTIFACT_LIMIT, Files
from routecast.tuner.measure.subjects import Subject, Task

REPLY_LIMIT = 8 << 20
"""Bytes of JSON that a worker may answer with."""

_IDENTITY = re.compile(r"[0-9a-f]{32}")


class BadReply(RoutecastError):
    """A worker answered what cannot be used; the message is one line."""


@dataclass(frozen=True)
class Hello:
    """What a worker says of itself.

    Attributes:
        versions: of what driver and workers must share, by name.
        environment: where it measures.
        missing: what its backend lacks, and how to get it.
    """

    versions: dict[str, str]
    environment: Environment
    missing: tuple[str, ...]


def decode(reply: object) -> dict[str, Any]:
    """Reads an answer.

    Raises:
        BadReply: it is too long, or no JSON object.
    """
    if not isinstance(reply, bytes) or len(reply) > REPLY_LIMIT:
        raise BadReply(f"its answer is not JSON of at most {REPLY_LIMIT >> 20} MB")
    try:
        data = json.loads(reply)
    except ValueError:
        raise BadReply("its answer is not JSON") from None
    if not isinstance(data, dict):
        raise BadReply("its answer is no JSON object")
    return data


def read_hello(reply: object) -> Hello:
    """Reads what a worker says of itself."""
    data = decode(reply)
    try:
        environment = Environment.from_json(data["environment"])
        return Hello(
            {str(k): str(v) for k, v in data["versions"].items()}, environment, tuple(map(str, data["missing"]))
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise BadReply(f"it does not say what it is ({error!r})") from None


def refusal(hello: Hello, backend: str, own: dict[str, str]) -> str | None:
    """Why a worker cannot take part, None when it can."""
    differing = [f"{name} {hello.versions.get(name, 'none')} and here {mine}" for name, mine in own.items()
                 if hello.versions.get(name) != mine]  # fmt: skip
    if differing:
        return f"it has {', '.join(differing)}: install the same versions on both"
    if hello.missing:
        return f"{backend} does not work there: {'; '.join(hello.missing)}"
    if hello.environment.backend != backend:
        return f"it measures with {hello.environment.backend}, not with {backend}"
    return None


def read_space(data: dict[str, Any]) -> RouteSpace:
    """Reads a route space."""
    try:
        knobs = tuple(_knob(item) for item in data["knobs"])
        return RouteSpace(knobs, {str(name): str(reason) for name, reason in data["left_out"].items()})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadReply(f"its route space cannot be read ({error!r})") from None


def _knob(data: dict[str, Any]) -> Knob:
    requires = {name: tuple(values) for name, values in data["requires"].items()}
    return Knob(**{**data, "values": tuple(data["values"]), "requires": requires})


def read_measurement(
    data: dict[str, Any], subject: Subject, task: Task, environment: Environment, seen: Iterable[str]
) -> Measurement:
    """Reads a measurement and checks that it is the one asked for.

    Args:
        data: the answer.
        subject: the model that was to be measured.
        task: the route that was to be measured.
        environment: of the worker that was asked.
        seen: identities that came before.

    Raises:
        BadReply: it is of something else, its identity is not new, or its numbers are none.
    """
    try:
        found = Measurement.from_json(data["measurement"])
        check_measurement(found)
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise BadReply(f"its measurement cannot be read ({error!r})") from None
    asked = {
        "fingerprint": subject.model.graph.fingerprint,
        "route": task.route,
        "purpose": task.purpose,
        "environment": environment.identity,
        "model": subject.model.name,
        "family": subject.model.family,
        "run": subject.run,
    }
    for name, value in asked.items():
        if getattr(found, name) != value:
            raise BadReply(f"it was asked for {name} {str(value)!r} and measured {str(getattr(found, name))[:80]!r}")
    if not _IDENTITY.fullmatch(found.identity) or found.identity in seen:
        raise BadReply("its measurement does not have an identity of its own")
    _check_numbers(found)
    return found


def read_artifact(reply: object) -> tuple[str, Files]:
    """Reads the name and the files of a build.

    Raises:
        BadReply: it is none, or too large.
    """
    match reply:
        case (str(name), dict(files)) if name in files and all(isinstance(file, bytes) for file in files.values()):
            if sum(map(len, files.values())) <= ARTIFACT_LIMIT:
                return name, files
    raise BadReply(f"a worker sent no build of at most {ARTIFACT_LIMIT / 1e9:.1f} GB")


def _check_numbers(found: Measurement) -> None:
    single = {name: getattr(found, name) for name in ("latency_ms", "default_ms", "ratio", "ratio_low", "ratio_high")}
    blocks = {"blocks_ms": found.blocks_ms, "default_blocks_ms": found.default_blocks_ms}
    for name, value in single.items():
        if value is None:
            if found.ok:
                raise BadReply(f"its measurement is ok but has no {name}")
        elif not _positive(value):
            raise BadReply(f"its measurement has {name} {value!r}")
    for name, values in blocks.items():
        if not all(map(_positive, values)):
            raise BadReply(f"its measurement has {name} that are no times")


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0
