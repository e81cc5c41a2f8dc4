"""Running the passes that a route asks for, one after the other, from file to file."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
from onnx import ModelProto

from routecast.datasets.model import INLINE_LIMIT
from routecast.datasets.route import Route
from routecast.tuner.passes.base import GraphPass, PassContext, PassFailed


def run_passes(
    source: Path, target: Path, route: Route, passes: Sequence[GraphPass], calibration: Sequence[Path] = ()
) -> Path | None:
    """Rewrites ``source`` into ``target`` as the route says.

    Returns:
        ``target``, or None when the route asks for no pass, and nothing was written.

    Raises:
        PassFailed: a pass failed or broke the model's inputs or outputs; the message names it.
    """
    wanted = [graph_pass for graph_pass in passes if graph_pass.wanted(route)]
    if not wanted:
        return None
    model = onnx.load(source)
    inputs, outputs = _names(model)
    for graph_pass in wanted:
        with tempfile.TemporaryDirectory(dir=target.parent) as folder, _quiet():
            context = PassContext(route, Path(folder), tuple(calibration))
            try:
                model = graph_pass.apply(model, context)
            except Exception as error:  # whatever a library raises on a graph that it was not made for
                raise PassFailed(f"pass {graph_pass.name}: {type(error).__name__}: {error}") from error
        _check(model, inputs, outputs, graph_pass.name)
    save(model, target)
    return target


def save(model: ModelProto, target: Path) -> None:
    """Writes a model, its weights beside it when protobuf could not hold them."""
    external = model.ByteSize() > INLINE_LIMIT
    onnx.save_model(model, target, save_as_external_data=external, location=f"{target.name}.data")


def _names(model: ModelProto) -> tuple[set[str], list[str]]:
    return {value.name for value in model.graph.input}, [value.name for value in model.graph.output]


def _check(model: ModelProto, inputs: set[str], outputs: list[str], name: str) -> None:
    new_inputs, new_outputs = _names(model)
    if new_outputs != outputs or not new_inputs <= inputs:
        raise PassFailed(
            f"pass {name}: it changed the model's interface from {sorted(inputs)} -> {outputs} "
            f"to {sorted(new_inputs)} -> {new_outputs}"
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what the libraries print, log and warn from the user: a route's outcome says all there is."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
