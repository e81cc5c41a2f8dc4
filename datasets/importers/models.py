"""The ONNX files that imported measurements are about."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from routecast.datasets.errors import UsageError
from routecast.datasets.importers.request import ImportRequest
from routecast.datasets.importers.session import LeftOut, Session, Shapes

if TYPE_CHECKING:
    from routecast.datasets.model import Model

UNNAMED = "no ONNX file is named in it: name it with --model"
MOST_FILES = 100_000
"""Files looked at in the folders a user names."""


class ModelFinder:
    """Finds and opens models, each once.

    A file names its model by a path of another machine, or of a stranger: only its last parts are used, and what they
    lead to must lie inside a folder that the user named, links resolved.
    """

    def __init__(self, request: ImportRequest) -> None:
        """Takes what the user named.

        Raises:
            UsageError: a folder does not exist.
        """
        self._request = request
        self._opened: dict[tuple[Path, tuple[tuple[str, tuple[int, ...]], ...]], Model | str] = {}
        self._named: str | None = None
        for folder in request.folders:
            if not folder.is_dir():
                raise UsageError(f"--models {folder}: no such folder")

    def open(self, session: Session, beside: Path) -> Model:
        """The model of a session.

        Args:
            session: what a file holds.
            beside: the folder of that file.

        Raises:
            LeftOut: it is not named, found nowhere, found more than once, or cannot be opened at known shapes.
        """
        path = self._named_model(session) if self._request.model is not None else self._recorded(session.onnx, beside)
        return self._open(path, self._shapes(session))

    def _named_model(self, session: Session) -> Path:
        assert self._request.model is not None
        recorded = PurePosixPath(session.onnx).name
        if recorded:
            if self._named not in (None, recorded):
                raise LeftOut(
                    f"it is about {recorded!r} while another file is about {self._named!r}: --model names one of them"
                )
            self._named = recorded
        return self._request.model

    def _recorded(self, recorded: str, beside: Path) -> Path:
        if not recorded:
            raise LeftOut(UNNAMED)
        parts = [part for part in PurePosixPath(recorded.replace("\\", "/")).parts if part.strip("/")]
        if not parts or parts[-1] in (".", "..") or "\0" in recorded:
            raise LeftOut(UNNAMED)
        found = {path.resolve() for path in self._candidates(parts, beside)}
        if not found:
            raise LeftOut(f"no file {parts[-1]!r} beside it or in --models: name its folder, or the file with --model")
        if len(found) > 1:
            raise LeftOut(f"{len(found)} files are called {parts[-1]!r}: name the right one with --model")
        return found.pop()

    def _candidates(self, parts: list[str], beside: Path) -> Iterator[Path]:
        for start in range(len(parts)):
            place = beside.joinpath(*parts[start:])
            if ".." not in parts[start:] and _is_inside(place, beside):
                yield place
        yield from self._by_name.get(parts[-1], ())

    @cached_property
    def _by_name(self) -> Mapping[str, list[Path]]:
        found: defaultdict[str, list[Path]] = defaultdict(list)
        for folder in self._request.folders:
            files = (Path(root, name) for root, _, names in os.walk(folder) for name in names)
            looked = 0
            for path in islice(files, MOST_FILES + 1):
                looked += 1
                if _is_inside(path, folder):
                    found[path.name].append(path)
            if looked > MOST_FILES:
                raise UsageError(f"--models {folder} holds more than {MOST_FILES:,} files; name a smaller folder")
        return found

    def _shapes(self, session: Session) -> dict[str, tuple[int, ...]]:
        given, recorded = self._request.shapes, session.shapes
        for name in given.keys() & recorded.keys():
            if given[name] != recorded[name]:
                raise LeftOut("the shapes given contradict those that it records")
        return {**given, **recorded}

    def _open(self, path: Path, shapes: Shapes) -> Model:
        from routecast.datasets.model import open_model

        key = path, tuple(sorted(shapes.items()))
        if key not in self._opened:
            try:
                self._opened[key] = open_model(path, shapes, family=self._request.family)
            except UsageError as error:
                self._opened[key] = str(error)
        found = self._opened[key]
        if isinstance(found, str):
            raise LeftOut(found)
        return found


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether a path leads to a file inside a folder, links resolved."""
    try:
        return path.resolve().is_relative_to(folder.resolve()) and path.is_file()
    except (OSError, ValueError, RuntimeError):
        return False
