"""Training examples on disk, read one at a time: what a training run needs of a history of any size.

The file is an SQLite database that ``streaming.gather`` writes. It holds the measurements without what training does
not look at, the graphs with their features, and the examples as arrays in safetensors form.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import safetensors.numpy as safetensors

from routecast.costmodel.features import (
    Floats,
    GraphFeatures,
    Integers,
    TextFeatures,
    environment_features,
    token_features,
)
from routecast.costmodel.repeats import METRIC
from routecast.datasets.environment import Environment
from routecast.datasets.graph import Graph
from routecast.datasets.measurement import LocalTime, Measurement, Purpose, Status
from routecast.datasets.records import Records
from routecast.datasets.route import Route
from routecast.training.examples import Example

TABLES = """
CREATE TABLE about (summary TEXT NOT NULL);
CREATE TABLE subject (number INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL, environment TEXT NOT NULL);
CREATE TABLE measurement (
    number INTEGER PRIMARY KEY, subject INTEGER NOT NULL, identity TEXT NOT NULL, route TEXT NOT NULL,
    status TEXT NOT NULL, model TEXT NOT NULL, family TEXT NOT NULL, purpose TEXT NOT NULL, latency_ms REAL,
    default_ms REAL, ratio REAL, ratio_low REAL, ratio_high REAL, build_seconds REAL, loss REAL, layers BLOB
);
CREATE TABLE graph (fingerprint TEXT PRIMARY KEY, content TEXT NOT NULL, features BLOB NOT NULL);
CREATE TABLE environment (identity TEXT PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE example (
    number INTEGER PRIMARY KEY, subject INTEGER NOT NULL, model TEXT NOT NULL, family TEXT NOT NULL,
    routes INTEGER NOT NULL, tokens TEXT NOT NULL, arrays BLOB NOT NULL
);
"""
COLUMNS = (
    "identity", "route", "status", "model", "family", "purpose", "latency_ms", "default_ms", "ratio", "ratio_low",
    "ratio_high", "build_seconds", "loss",
)  # fmt: skip
_FIXED = ("texts", "numbers", "edges")
_OF_DEVICE = ("roofline", "summary")
_ARRAYS = ("route_tokens", "lengths", "log_ratio", "noise", "log_loss", "failed", "broken", "log_build", "local_shares")
_SCALARS = ("log_default", "log_local_sum", "gap")
_GRAPHS_IN_MEMORY = 256
_NAMES_IN_MEMORY = 4096

SAMPLE = 10_000
"""Routes that a training run is evaluated on at most: enough for every figure, few enough to be in memory."""


@dataclass(frozen=True)
class Summary:
    """What is in a store.

    Attributes:
        digest: of the measurements' identities, as ``Records.digest`` has it.
        measurements: how many.
        timed: how many routes have a log ratio.
        spread: standard deviation of those, NaN without any.
        ops: operator types of the graphs.
        settings: route settings, as ``name=value``.
    """

    digest: str
    measurements: int
    timed: int
    spread: float
    ops: Sequence[str]
    settings: Sequence[str]


class ExampleStore:
    """The examples of a history, in the order of the first measurement of each model and environment.

    Attributes:
        path: of the file.
        summary: what is in it.
        families: the family of each example.
        routes: the number of routes of each example, shape (E,).
    """

    def __init__(self, path: Path) -> None:
        """Opens a file that ``streaming.gather`` wrote, for reading."""
        self.path = path
        self._database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        self.summary = Summary(**json.loads(self._one("SELECT summary FROM about")[0]))
        rows = self._database.execute("SELECT number, subject, family, routes FROM example ORDER BY subject, number")
        found = [(number, subject, family, routes) for number, subject, family, routes in rows]
        self._numbers = np.array([number for number, *_ in found], np.int64)
        self._subjects = np.array([subject for _, subject, *_ in found], np.int64)
        self.families = [family for *_, family, _ in found]
        self.routes = np.array([routes for *_, routes in found], np.int64)
        self._graph = lru_cache(_GRAPHS_IN_MEMORY)(self._read_graph)
        self._device = lru_cache(_NAMES_IN_MEMORY)(self._read_device)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Example:
        """Reads one example."""
        fingerprint, environment, model, family, tokens, content = self._one(
            "SELECT fingerprint, environment, model, family, tokens, arrays FROM example JOIN subject "
            "ON subject.number = example.subject WHERE example.number = ?",
            int(self._numbers[index]),
        )
        arrays: dict[str, Any] = safetensors.load(content)
        values: dict[str, Any] = dict(zip(_SCALARS, map(float, arrays.pop("scalars")), strict=True))
        settings = tuple((name, value) for name, value in json.loads(tokens))
        fixed = self._graph(fingerprint)
        return Example(
            fingerprint=fingerprint,
            environment=environment,
            model=model,
            family=family,
            graph=replace(fixed, **{name: arrays.pop(name) for name in _OF_DEVICE}),
            device=self._device(environment),
            tokens=settings,
            token_features=token_features(settings),
            **arrays,
            **values,
        )

    def __iter__(self) -> Iterator[Example]:
        return (self[index] for index in range(len(self)))

    def environments(self) -> list[Environment]:
        """Those of the examples."""
        rows = self._database.execute(
            "SELECT content FROM environment WHERE identity IN "
            "(SELECT environment FROM example JOIN subject ON subject.number = example.subject)"
        )
        return [Environment.from_json(json.loads(content)) for (content,) in rows]

    def models(self) -> int:
        """How many different graphs the examples have."""
        return int(self._one("SELECT count(*) FROM graph")[0])

    def sample(self, limit: int = SAMPLE) -> list[int]:
        """Draws examples to evaluate on, always the same: one of each model and environment, or some of these.

        Args:
            limit: how many routes they may have together; every family is in, though, whatever it has.

        Returns:
            Indices, ascending.
        """
        _, firsts = np.unique(self._subjects, return_index=True)
        if self.routes[firsts].sum() <= limit:
            return sorted(map(int, firsts))
        order = [int(index) for index in np.random.default_rng(0).permutation(firsts)]
        of_family = {self.families[index]: index for index in order}
        chosen = dict.fromkeys(of_family.values())
        held = sum(int(self.routes[index]) for index in chosen)
        for index in order:
            if index not in chosen and held + self.routes[index] <= limit:
                chosen[index] = None
                held += int(self.routes[index])
        return sorted(chosen)

    def records(self, indices: Iterable[int]) -> Records:
        """The measurements of some examples with their graphs and environments, without what training leaves aside."""
        records = Records()
        for index in indices:
            example = self[index]
            records.measurements.extend(self._measurements(example, int(self._subjects[index])))
            if example.fingerprint not in records.graphs:
                content = self._one("SELECT content FROM graph WHERE fingerprint = ?", example.fingerprint)[0]
                records.graphs[example.fingerprint] = Graph.from_json(json.loads(content))
            if example.environment not in records.environments:
                content = self._one("SELECT content FROM environment WHERE identity = ?", example.environment)[0]
                records.environments[example.environment] = Environment.from_json(json.loads(content))
        return records

    def measured(self) -> Iterator[tuple[str, str, str]]:
        """Fingerprint, environment and text form of the route of every measurement."""
        yield from self._database.execute(
            "SELECT fingerprint, environment, route FROM measurement "
            "JOIN subject ON subject.number = measurement.subject"
        )

    def family_sizes(self) -> Counter[str]:
        """Number of routes of each family."""
        sizes: Counter[str] = Counter()
        for family, routes in zip(self.families, self.routes, strict=True):
            sizes[family] += int(routes)
        return sizes

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _measurements(self, example: Example, subject: int) -> Iterator[Measurement]:
        wanted = {Route(), *example.routes}
        for measurement in read_measurements(self._database, subject):
            if measurement.route in wanted:
                yield measurement

    def _read_graph(self, fingerprint: str) -> GraphFeatures:
        content = self._one("SELECT features FROM graph WHERE fingerprint = ?", fingerprint)[0]
        unknown: dict[str, Any] = dict.fromkeys(_OF_DEVICE, np.empty(0, np.float32))
        return GraphFeatures(**safetensors.load(content), **unknown)

    def _read_device(self, environment: str) -> TextFeatures:
        content = self._one("SELECT content FROM environment WHERE identity = ?", environment)[0]
        return environment_features(Environment.from_json(json.loads(content)))

    def _one(self, query: str, *values: Any) -> tuple[Any, ...]:
        row: tuple[Any, ...] = self._database.execute(query, values).fetchone()
        return row


def write_example(database: sqlite3.Connection, example: Example, subject: int) -> None:
    """Adds an example; its graph is written by ``write_graph``."""
    arrays: dict[str, Floats | Integers | np.ndarray[Any, Any]] = {
        **{name: getattr(example, name) for name in _ARRAYS},
        **{name: getattr(example.graph, name) for name in _OF_DEVICE},
        "scalars": np.array([getattr(example, name) for name in _SCALARS], np.float64),
    }
    database.execute(
        "INSERT INTO example (subject, model, family, routes, tokens, arrays) VALUES (?, ?, ?, ?, ?, ?)",
        (
            subject,
            example.model,
            example.family,
            len(example.lengths),
            json.dumps(example.tokens),
            safetensors.save(arrays),
        ),
    )


def write_graph(database: sqlite3.Connection, graph: Graph, features: GraphFeatures) -> None:
    """Adds a graph, and those of its features that are the same in every environment."""
    fixed = safetensors.save({name: getattr(features, name) for name in _FIXED})
    content = json.dumps(graph.to_json(), separators=(",", ":"))
    database.execute("INSERT INTO graph VALUES (?, ?, ?)", (graph.fingerprint, content, fixed))


def measurement_row(measurement: Measurement, subject: int) -> tuple[Any, ...]:
    """What is kept of a measurement, as a row; of local profiles only that of the default route is learned from."""
    layers = None
    if measurement.local_profile and measurement.route.is_default:
        layers = np.array([(layer.node, layer.ms) for layer in measurement.local_profile], np.float64).tobytes()
    return (
        subject, measurement.identity, str(measurement.route), str(measurement.status), measurement.model,
        measurement.family, str(measurement.purpose), measurement.latency_ms, measurement.default_ms,
        measurement.ratio, measurement.ratio_low, measurement.ratio_high, measurement.build_seconds, _loss(measurement),
        layers,
    )  # fmt: skip


def _loss(measurement: Measurement) -> float | None:
    """The accuracy loss that is learned; SQLite has no NaN, so one is as bad as can be."""
    loss = measurement.accuracy.get(METRIC)
    return loss if loss is None or math.isfinite(loss) else math.inf


def read_measurements(database: sqlite3.Connection, subject: int) -> Iterator[Measurement]:
    """What was kept of the measurements of one model in one environment, in their order."""
    fingerprint, environment = database.execute(
        "SELECT fingerprint, environment FROM subject WHERE number = ?", (subject,)
    ).fetchone()
    query = f"SELECT layers, {', '.join(COLUMNS)} FROM measurement WHERE subject = ? ORDER BY number"  # noqa: S608
    for layers, *row in database.execute(query, (subject,)):
        values = dict(zip(COLUMNS, row, strict=True))
        values["route"] = _route(values["route"])
        loss = values.pop("loss")
        values["accuracy"] = {} if loss is None else {METRIC: loss}
        values["status"], values["purpose"] = Status(values["status"]), Purpose(values["purpose"])
        profile = () if layers is None else _profile(layers)
        yield Measurement(fingerprint, environment=environment, local_profile=profile, created="", **values)


def _profile(layers: bytes) -> tuple[LocalTime, ...]:
    return tuple(LocalTime("", "", ms, int(node)) for node, ms in np.frombuffer(layers, np.float64).reshape(-1, 2))


@lru_cache(_NAMES_IN_MEMORY)
def _route(text: str) -> Route:
    return Route.parse(text)
