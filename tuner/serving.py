"""The cost model as a service: an ONNX model and routes come in, a ranking goes out, and nothing is built or run.

``RankingModel`` is what a registered cost model is to MLflow, for ``mlflow models serve`` and
``mlflow.pyfunc.load_model``. A request has a row per model:

- ``model``: the content of an ONNX file in base64, its weights inside; at most ``LARGEST_MODEL`` bytes;
- ``shapes``: input shapes by name, where axes are dynamic;
- ``environment``: where it is to run, as ``Environment.to_json`` has it; without, this machine with ``backend``;
- ``backend``: by name, ``onnxruntime`` without;
- ``routes``: what to rank, at most ``MOST_ROUTES``; without, a pool drawn from the backend's route space.

Parameters are those of ``routecast predict``: ``top``, ``pool``, ``seed``, ``numerics``, ``any_version``. The answer is
a ``Ranking`` as JSON for each row. What a request may cost is limited, since anybody may send one.
"""

from __future__ import annotations

import base64
import binascii
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas
from mlflow.exceptions import MlflowException
from mlflow.pyfunc.model import PythonModel, PythonModelContext
from onnx import ModelProto, NodeProto, TensorProto

from routecast.costmodel import load_cost_model
from routecast.datasets.environment import Environment
from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.onnx_file import all_tensors, domain_of, read_proto, subgraphs
from routecast.datasets.route import Route
from routecast.tuner.backends.registry import backend_names
from routecast.tuner.ranking import predict

if TYPE_CHECKING:
    from routecast.costmodel import Ensemble

LARGEST_MODEL = 128 * 2**20
MOST_MODELS = 16
"""Rows of one request."""
MOST_ROUTES = 10_000
MOST_OPERATORS = 20_000
"""Of one model, with its functions written out."""
LONGEST_ROUTE = 4096


class RankingModel(PythonModel):
    """Ranks routes with the cost model saved in a folder."""

    def __init__(self, folder: Path) -> None:
        """Takes the folder; the weights are read when MLflow loads the model."""
        self._folder = folder
        self._cost_model: Ensemble | None = None

    def load_context(self, context: PythonModelContext) -> None:
        """Reads the weights.

        Raises:
            UsageError: they are damaged, or of another schema.
        """
        del context
        self._cost_model = load_cost_model(self._folder)

    def predict(
        self, context: PythonModelContext, model_input: pandas.DataFrame, params: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Ranks the routes of each row.

        Raises:
            MlflowException: the request cannot be met, as one line; a server answers with status 400.
        """
        del context
        rows = model_input.to_dict("records")
        try:
            if len(rows) > MOST_MODELS:
                raise UsageError(f"a request has at most {MOST_MODELS} models, got {len(rows)}: send several")
            options = _options(params or {})
            return [self._rank(RankingRequest.parse(row), options) for row in rows]
        except RoutecastError as error:
            raise MlflowException.invalid_parameter_value(" ".join(str(error).split())) from None

    def _rank(self, request: RankingRequest, options: Mapping[str, Any]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "model.onnx"
            path.write_bytes(request.model)
            try:
                _check(path)
                ranking = predict(
                    path,
                    shapes=request.shapes,
                    backend=request.backend,
                    environment=request.environment,
                    routes=request.routes,
                    cost_model=self._cost_model,
                    **options,
                )
            except RoutecastError as error:
                raise UsageError(str(error).replace(str(path), "the model").replace(scratch, "the request")) from None
        return ranking.to_json()


@dataclass(frozen=True)
class RankingRequest:
    """One row of a request.

    Attributes:
        model: an ONNX file.
        shapes: input shapes by name.
        backend: what builds and runs the model.
        environment: where; None is this machine.
        routes: what to rank; None draws a pool.
    """

    model: bytes
    shapes: Mapping[str, tuple[int, ...]]
    backend: str
    environment: Environment | None
    routes: tuple[Route, ...] | None

    @classmethod
    def parse(cls, row: Mapping[str, Any]) -> RankingRequest:
        """Reads a row.

        Raises:
            UsageError: it is malformed, or larger than allowed.
        """
        given = {name: value for name, value in row.items() if not _absent(value)}
        environment = _environment(given["environment"]) if "environment" in given else None
        routes = _routes(given["routes"]) if "routes" in given else None
        backend = str(given.get("backend", environment.backend if environment else "onnxruntime"))
        if environment is not None and backend != environment.backend:
            raise UsageError(f"the environment is of backend {environment.backend}, but {backend} was asked for")
        # Not get_backend alone: it also takes module:Class, which nobody may name from outside.
        if (environment is None or routes is None) and backend not in backend_names():
            raise UsageError(
                f"unknown backend {backend!r}: choose one of {', '.join(backend_names())}, "
                "or give both an environment and routes"
            )
        return cls(_model(given.get("model")), _shapes(given.get("shapes", {})), backend, environment, routes)


def _absent(value: Any) -> bool:
    """Whether a cell is empty; a table has NaN where one row lacks what another has."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _model(text: Any) -> bytes:
    if not isinstance(text, str) or not text:
        raise UsageError("a request needs a model: the content of an ONNX file in base64")
    if len(text) > 4 * (LARGEST_MODEL // 3 + 1):
        raise UsageError(f"the model has more than {LARGEST_MODEL} bytes, which is not allowed; rank it with routecast")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"the model is not base64 ({error}): encode the content of an ONNX file") from error


def _shapes(given: Any) -> dict[str, tuple[int, ...]]:
    try:
        shapes = {str(name): tuple(int(size) for size in sizes) for name, sizes in dict(given).items()}
    except (TypeError, ValueError):
        raise UsageError(f"shapes are lists of sizes by input name, got {_shortened(given)}") from None
    if any(size < 1 for sizes in shapes.values() for size in sizes):
        raise UsageError(f"every size of a shape must be above 0, got {_shortened(given)}")
    return shapes


def _routes(given: Any) -> tuple[Route, ...]:
    if not isinstance(given, list):
        raise UsageError(f"routes are a list of texts, got {_shortened(given)}")
    if not 1 <= len(given) <= MOST_ROUTES:
        raise UsageError(f"a request ranks between 1 and {MOST_ROUTES} routes, got {len(given)}")
    for text in given:
        if not isinstance(text, str) or len(text) > LONGEST_ROUTE:
            raise UsageError(f"a route is a text of at most {LONGEST_ROUTE} letters, got {_shortened(text)}")
    return tuple(map(Route.parse, given))


def _environment(given: Any) -> Environment:
    try:
        environment = Environment.from_json(given)
        numbers = {str(name): float(value) for name, value in environment.numbers.items()}
        versions = {str(name): str(value) for name, value in environment.versions.items()}
    except (TypeError, ValueError, AttributeError):
        raise UsageError(
            "an environment has a backend, a backend_version and a device, versions and numbers by name, "
            f"got {_shortened(given)}"
        ) from None
    texts = [value for value in vars(environment).values() if not isinstance(value, Mapping)]
    if not all(isinstance(text, str) for text in texts) or not all(map(math.isfinite, numbers.values())):
        raise UsageError(f"an environment is made of texts and finite numbers, got {_shortened(given)}")
    known = {**vars(environment), "numbers": numbers, "versions": versions}
    return Environment(**known)


def _options(params: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of ``predict``."""
    counts = {name: int(params.get(name, default)) for name, default in (("top", 10), ("pool", 4096))}
    for name, least in (("top", 1), ("pool", 2)):
        if not least <= counts[name] <= MOST_ROUTES:
            raise UsageError(f"{name} must be between {least} and {MOST_ROUTES}, got {counts[name]}")
    return {
        **counts,
        "seed": abs(int(params.get("seed", 0))),
        "allow_numerics": bool(params.get("numerics", True)),
        "any_version": bool(params.get("any_version", False)),
    }


def _check(path: Path) -> None:
    """Refuses what a service cannot read, and what would cost it too much.

    Raises:
        UsageError: there is external data, or there are too many operators.
    """
    proto = read_proto(path)
    if any(tensor.data_location == TensorProto.EXTERNAL for tensor in all_tensors(proto)):
        raise UsageError("the model keeps weights in other files, which a request cannot hold: send them inside it")
    if (count := _operators(proto)) > MOST_OPERATORS:
        raise UsageError(f"the model has {count} operators, more than the {MOST_OPERATORS} that are allowed")


def _operators(proto: ModelProto) -> int:
    """Number of operators once functions are written out, which a few nested ones can make enormous."""
    functions = {(domain_of(item.domain), item.name): item.node for item in proto.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size(nodes: Sequence[NodeProto], within: tuple[tuple[str, str], ...]) -> int:
        return sum(_weight(node, within) for top in nodes for node in _with_bodies(top))

    def _weight(node: NodeProto, within: tuple[tuple[str, str], ...]) -> int:
        name = domain_of(node.domain), node.op_type
        if name not in functions:
            return 1
        if name in within:
            raise UsageError(f"the function {name[1]} of the model calls itself, which ONNX does not allow")
        if name not in sizes:
            sizes[name] = size(functions[name], (*within, name))
        return sizes[name]

    return size(proto.graph.node, ())


def _with_bodies(node: NodeProto) -> Iterator[NodeProto]:
    """A node, and those in its subgraphs at any depth."""
    yield node
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from _with_bodies(inner)


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
