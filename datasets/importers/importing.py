"""Files of other tools in, measurements out; what stays out is counted by reason."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.importers import torch_tensorrt, trtexec
from routecast.datasets.importers.detection import Format, detect, refuse_pickles
from routecast.datasets.importers.models import ModelFinder
from routecast.datasets.importers.reading import decode, read_content
from routecast.datasets.importers.request import ImportRequest
from routecast.datasets.importers.session import LeftOut, Row, Session
from routecast.datasets.importers.trtexec_json import PROFILE_ALONE, read_profile, read_times
from routecast.datasets.importers.trtexec_log import read_log
from routecast.datasets.measurement import Measurement
from routecast.datasets.model import Model
from routecast.datasets.records import Records

NO_DEVICE = "it does not say which GPU: name it with --device"
DUPLICATE = "the same line again"
DAMAGED_PROFILE = "the profile is truncated or damaged"
MANY_RUNS = "several runs wrote it, one over the other"
IN_LOG = "the log of its run is imported, which holds its time"


@dataclass(frozen=True)
class FileReport:
    """What became of one file.

    Attributes:
        file: its path.
        format: what it was read as, empty when it was not read.
        measurements: how many it gave.
        skipped: how many could not be imported, by reason.
        notes: how many lack something, by what it is.
    """

    file: str
    format: str
    measurements: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, int] = field(default_factory=dict)

    @property
    def found(self) -> int:
        """How many measurements the file holds."""
        return self.measurements + sum(self.skipped.values())

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable form."""
        return {
            "file": self.file,
            "format": self.format,
            "found": self.found,
            "measurements": self.measurements,
            "skipped": dict(self.skipped),
            "notes": dict(self.notes),
        }


@dataclass(frozen=True)
class Imported:
    """What was imported, and what was not.

    Attributes:
        records: the measurements with their graphs and environments.
        files: a report on each file, in the order given.
    """

    records: Records
    files: tuple[FileReport, ...]


@dataclass
class _Source:
    """One file as it is read."""

    path: Path
    format: Format
    text: str
    sessions: list[Session] = field(default_factory=list)


def import_files(
    paths: Sequence[Path], request: ImportRequest | None = None, file_format: Format | None = None
) -> Imported:
    """Reads files of other tools as measurements.

    A measurement's identity is a hash of what it says, so that importing a file twice adds nothing. ``run`` names the
    file, and ``created`` is the time of the file's last change, since the formats hold no dates.

    Args:
        paths: the files. Those of one run belong together: a log lends its device and shapes to the tuning cache, and
            takes the profile, that its command line names.
        request: what the user says about them.
        file_format: what they are; detected when None.

    Raises:
        UsageError: a file or folder does not exist.
    """
    request = request or ImportRequest()
    finder = ModelFinder(request)
    reports: dict[Path, FileReport] = {}
    sources = [source for path in dict.fromkeys(paths) if (source := _open(path, file_format, reports))]
    _read(sources, request, reports)
    records, held = Records(), set[str]()
    for source in sources:
        if source.path not in reports:
            reports[source.path] = _take(source, request, finder, records, held)
    return Imported(records, tuple(reports[path] for path in dict.fromkeys(paths)))


def _open(path: Path, file_format: Format | None, reports: dict[Path, FileReport]) -> _Source | None:
    """Reads a file; one that is there and cannot be used is reported, so that the others are imported."""
    if not path.exists():
        raise UsageError(f"{path}: no such file")
    try:
        content = read_content(path)
        refuse_pickles(content, path)
        text = decode(content)
        found = file_format or detect(text, path)
        if found is None:
            known = ", ".join(Format)
            raise UsageError(f"its content is none of {known}")
        return _Source(path, found, text)
    except UsageError as error:
        reports[path] = FileReport(str(path), str(file_format or ""), 0, {str(error): 1})
        return None


def _read(sources: Sequence[_Source], request: ImportRequest, reports: dict[Path, FileReport]) -> None:
    """Reads the sessions of every file, and joins files of one run."""
    caches = [source.path.name for source in sources if source.format is Format.TRTEXEC_CACHE]
    logs = [source for source in sources if source.format is Format.TRTEXEC_LOG]
    for source in logs:
        source.sessions = read_log(source.text, caches)
    for source in sources:
        writers = [
            (log, index)
            for log in logs
            for index, session in enumerate(log.sessions)
            if source.path.name in session.outputs
        ]
        if source.format is Format.TRTEXEC_CACHE:
            writer = writers[0][0].sessions[writers[0][1]] if len(writers) == 1 else None
            source.sessions = [_lent(session, writer) for session in trtexec.read_cache(source.text)]
        elif source.format is Format.TORCH_TENSORRT_CACHE:
            source.sessions = torch_tensorrt.read_cache(source.text)
        elif source.format is Format.TRTEXEC_TIMES:
            source.sessions = [] if writers else read_times(source.text, request)
            if writers:
                reports[source.path] = _only(source, IN_LOG)
        elif source.format is Format.TRTEXEC_PROFILE:
            reports[source.path] = _attach(source, writers)
        source.text = ""


def _only(source: _Source, reason: str) -> FileReport:
    return FileReport(str(source.path), str(source.format), 0, {reason: 1})


def _lent(session: Session, writer: Session | None) -> Session:
    """A cache's session with what the log of its tuner knows."""
    if writer is None:
        return session
    place = replace(writer.environment, tuner_version=session.environment.tuner_version)
    return replace(session, environment=place, shapes={**writer.shapes, **session.shapes})


def _attach(source: _Source, writers: list[tuple[_Source, int]]) -> FileReport:
    """Gives a profile to the run that wrote it."""
    profile = read_profile(source.text)
    if profile is None:
        return _only(source, DAMAGED_PROFILE)
    if not writers:
        return _only(source, PROFILE_ALONE)
    log, index = writers[0]
    session = log.sessions[index]
    if len(writers) > 1 or len(session.rows) != 1:
        return _only(source, MANY_RUNS)
    log.sessions[index] = replace(session, rows=(replace(session.rows[0], local_profile=profile),))
    note = {f"times of {len(profile)} layers joined to the run in {log.path.name}": 1}
    return FileReport(str(source.path), str(source.format), 0, {}, note)


def _take(source: _Source, request: ImportRequest, finder: ModelFinder, records: Records, held: set[str]) -> FileReport:
    """Adds what a file's sessions hold to the records."""
    skipped, notes = Counter[str](), Counter[str]()
    created = datetime.fromtimestamp(source.path.stat().st_mtime, UTC).isoformat(timespec="milliseconds")
    before = len(records)
    for session in source.sessions:
        skipped.update(session.skipped)
        if not session.rows:
            continue
        try:
            place = _environment(session, request)
            model = finder.open(session, source.path.parent)
        except LeftOut as reason:
            skipped[str(reason)] += len(session.rows)
            continue
        notes.update(session.notes)
        records.graphs[model.graph.fingerprint] = model.graph
        records.environments.setdefault(place.identity, place)
        frame = _frame(model, place.identity, source.path.name, created)
        for row in session.rows:
            measurement = _measurement(row, frame)
            if measurement.identity in held:
                skipped[DUPLICATE] += 1
            else:
                held.add(measurement.identity)
                records.measurements.append(measurement)
    count = len(records) - before
    return FileReport(str(source.path), str(source.format), count, dict(+skipped), dict(+notes))


def _environment(session: Session, request: ImportRequest) -> Environment:
    if session.refused:
        raise LeftOut(session.refused)
    recorded = session.environment
    device = request.device or recorded.device
    if not device:
        raise LeftOut(NO_DEVICE)
    # Numbers and host of a GPU that the user says it was not would be wrong.
    known = recorded if device == recorded.device else replace(recorded, numbers={}, host="")
    return replace(known, device=device, backend_version=recorded.backend_version or request.backend_version)


def _frame(model: Model, environment: str, name: str, created: str) -> dict[str, Any]:
    """What all measurements of a session share."""
    return {
        "fingerprint": model.graph.fingerprint,
        "environment": environment,
        "model": model.name,
        "family": model.family,
        "run": f"import:{name}",
        "created": created,
    }


def _measurement(row: Row, frame: Mapping[str, Any]) -> Measurement:
    return Measurement(
        **frame,
        route=row.route,
        status=row.status,
        latency_ms=row.latency_ms,
        default_ms=row.default_ms if row.latency_ms is not None else None,
        ratio=row.latency_ms / row.default_ms if row.latency_ms is not None and row.default_ms is not None else None,
        accuracy=row.accuracy,
        build_seconds=row.build_seconds,
        load_seconds=row.load_seconds,
        local_profile=row.local_profile,
        message=row.message,
        identity=_identity(row, frame),
    )


def _identity(row: Row, frame: Mapping[str, Any]) -> str:
    """The same for the same content, whatever file it stands in: 32 hexadecimal digits."""
    said = [
        frame["fingerprint"], frame["environment"], str(row.route), str(row.status), row.latency_ms,
        sorted(row.accuracy.items()), row.message,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:32]
