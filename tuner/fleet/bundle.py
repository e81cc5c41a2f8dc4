"""What travels to the workers: a model, its inputs and how to measure it, as bytes and not by a shared path."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.model import Model, write_static
from routecast.tuner.measure.inputs import load_inputs
from routecast.tuner.measure.subjects import Subject

Files = dict[str, bytes]
"""Contents by name; a name may have folders, and stays inside the folder it is written to."""

MODEL_LIMIT = 4 * 2**30
INPUTS_LIMIT = 2**30
ARTIFACT_LIMIT = 4 * 2**30


@dataclass(frozen=True)
class Bundle:
    """A subject without paths of the machine it comes from.

    Attributes:
        subject: what to measure; its paths are the sender's.
        model: the ONNX file at fixed shapes, with its external weights if it has any.
        inputs: the user's input sets.
    """

    subject: Subject
    model: Files
    inputs: Files


def pack(subject: Subject) -> Bundle:
    """Reads all that a worker needs.

    Raises:
        UsageError: an input set does not fit the model, or model or inputs are too large to send.
    """
    for path in subject.config.inputs:
        load_inputs(path, subject.model)
    inputs = {f"{number}-{path.name}": path for number, path in enumerate(subject.config.inputs)}
    _check_size("the input sets", inputs.values(), INPUTS_LIMIT, "give fewer of them")
    with tempfile.TemporaryDirectory(prefix="routecast-") as folder:
        write_static(subject.model, Path(folder))
        written = {path.name: path for path in Path(folder).iterdir()}
        what = f"the model {subject.model.path}"
        _check_size(what, written.values(), MODEL_LIMIT, "measure it without --ray")
        model = {name: path.read_bytes() for name, path in written.items()}
    return Bundle(subject, model, {name: path.read_bytes() for name, path in inputs.items()})


def unpack(bundle: Bundle, folder: Path) -> Subject:
    """Writes a bundle's files into a folder and returns the subject with their paths."""
    write_files(bundle.model, folder)
    write_files(bundle.inputs, folder)
    subject = bundle.subject
    model: Model = replace(subject.model, path=folder / "model.onnx")
    config = replace(subject.config, inputs=tuple(folder / name for name in bundle.inputs))
    return replace(subject, model=model, config=config)


def read_files(folder: Path, paths: Iterable[Path], limit: int = ARTIFACT_LIMIT) -> Files:
    """Reads files by their names relative to a folder.

    Raises:
        RoutecastError: they are larger than ``limit`` bytes together.
    """
    paths = sorted(paths)
    _check_size(f"the build in {folder}", paths, limit, "take it from there by hand", RoutecastError)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def write_files(files: Files, folder: Path) -> None:
    """Writes what ``read_files`` read.

    Raises:
        RoutecastError: a name would leave the folder.
    """
    for name, content in files.items():
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise RoutecastError(f"a file that was sent would be written outside its folder: {name!r}")
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def _check_size(
    what: str, paths: Iterable[Path], limit: int, advice: str, kind: type[RoutecastError] = UsageError
) -> None:
    size = sum(path.stat().st_size for path in paths)
    if size > limit:
        raise kind(f"{what} has {size / 1e9:.1f} GB, more than the {limit / 1e9:.1f} GB sent over a fleet: {advice}")
