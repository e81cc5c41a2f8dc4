"""What ``routecast history import`` and ``export`` exchange with other tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from routecast.datasets.build_routes import parse_build_route
from routecast.datasets.errors import UsageError
from routecast.datasets.importers.detection import Format
from routecast.datasets.importers.request import ImportRequest
from routecast.datasets.journal import STARTS
from routecast.datasets.route import Route
from routecast.tuner.sources import BUILTIN, read_records

if TYPE_CHECKING:
    from routecast.datasets.importers import FileReport
    from routecast.datasets.records import Records

AUTO = "auto"


@dataclass(frozen=True)
class Gathered:
    """What was read from all sources, with a report on each file of another tool."""

    records: Records
    files: tuple[FileReport, ...]


def gather(sources: Sequence[str], request: ImportRequest, form: str) -> Gathered:
    """Reads histories in any of their forms, and files of other tools.

    Raises:
        UsageError: the format is unknown, or a source does not exist or cannot be read.
    """
    from routecast.datasets.importers import import_files
    from routecast.datasets.records import Records

    if form != AUTO and form not in list(Format):
        raise UsageError(f"--format takes {AUTO}, {', '.join(Format)}, got {form!r}")
    histories = [source for source in sources if form == AUTO and _is_history(source)]
    records = Records()
    for source in histories:
        records = records.merged(read_records(source))
    files = [Path(source) for source in sources if source not in histories]
    if not files:
        return Gathered(records, ())
    imported = import_files(files, request, None if form == AUTO else Format(form))
    return Gathered(records.merged(imported.records), imported.files)


def _is_history(source: str) -> bool:
    """Whether a source is one of routecast's own forms, or nothing that is there."""
    path = Path(source)
    if source == BUILTIN or "://" in source or not path.is_file():
        return True
    with path.open("rb") as file:
        start = file.read(32)
    return not start or start.startswith((b"SQLite format 3\0", *STARTS)) or path.suffix == ".db"


def parse_route(text: str | None) -> Route | None:
    """Reads ``--route``: ``default``, a build route as trtexec writes it, or a route as routecast does.

    Raises:
        UsageError: it is none of them.
    """
    if text is None:
        return None
    if text.strip() in ("", "default"):
        return Route()
    return parse_build_route(text, {}) if text.lstrip().startswith("-") else Route.parse(text)


def show_import(gathered: Gathered, new: int, place: str, *, json: bool) -> None:
    """Prints how many measurements came in, and why others did not."""
    from routecast.tuner.cli.output import print_json

    count = len(gathered.records)
    if json:
        files = [report.to_json() for report in gathered.files]
        print_json({"history": place, "measurements": count, "new": new, "files": files})
        return
    _show_files(gathered.files)
    typer.echo(f"{new} of {count} measurements were new in {place}")


def show_nothing(gathered: Gathered, *, json: bool) -> None:
    """Prints why nothing could be imported.

    Raises:
        UsageError: always.
    """
    from routecast.tuner.cli.output import print_json

    if json:
        print_json({"measurements": 0, "new": 0, "files": [report.to_json() for report in gathered.files]})
    else:
        _show_files(gathered.files)
    raise UsageError(f"nothing could be imported from {_named(gathered)}; the reasons are above")


def _show_files(files: Sequence[FileReport]) -> None:
    from routecast.tuner.cli.output import console, table

    screen = console()
    for report in files:
        rows = [("imported", f"{report.measurements:,}")] if report.measurements else []
        rows += [(f"not imported: {reason}", f"{number:,}") for reason, number in report.skipped.items()]
        rows += [(note, f"{number:,}") for note, number in report.notes.items()]
        title = f"{report.file} ({report.format})" if report.format else report.file
        screen.print(title, markup=False, soft_wrap=True)
        screen.print(table(("what", "measurements"), rows or [("it holds no measurement", "0")], text=("what",)))


def _named(gathered: Gathered) -> str:
    first = Path(gathered.files[0].file).name
    return first if len(gathered.files) == 1 else f"{len(gathered.files)} files"


def write_for_trtexec(records: Records, target: Path, model: str, device: str, *, cache: bool) -> None:
    """Writes a tuning cache, or a tuning expression, of one model on one device.

    Raises:
        UsageError: the history does not hold what is to be written, or the file cannot be written.
    """
    from routecast.datasets.exporters import select, trtexec_cache, trtexec_expression

    chosen = select(records, model, device)
    defaults = _defaults(chosen)
    if cache:
        made = trtexec_cache(chosen, defaults)
        text, said = made.text, f"{made.routes} routes of {chosen.measurements[0].model} written to {target}"
        left_out = made.left_out
    else:
        text, left_out = trtexec_expression(chosen, defaults), {}
        said = f"{len(text.splitlines())} knobs for --tuneBuildRouteFile written to {target}"
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from error
    typer.echo(said)
    for reason, number in left_out.items():
        typer.echo(f"{number} measurements left out: {reason}")


def _defaults(records: Records) -> dict[str, str]:
    """The compiler's defaults of the tuner that measured."""
    from routecast.tuner.backends.tensorrt.knobs import snapshot

    listing = snapshot()
    found = {environment.tuner_version for environment in records.environments.values()}
    if found != {listing.tuner_version}:
        version = next(iter(found), "") or "none"
        raise UsageError(
            f"the measurements were made with tuner version {version}, and the compiler's defaults are known of "
            f"{listing.tuner_version} alone: a tuning cache needs them"
        )
    return {knob.name: knob.default for knob in listing.knobs}
