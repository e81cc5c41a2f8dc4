"""Models and measurements that the tests of routecast.datasets share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.graph import Graph, Node, Tensor
from routecast.datasets.history import History
from routecast.datasets.measurement import LocalTime, Measurement, Status
from routecast.datasets.model import Model, open_model
from routecast.datasets.records import Records
from routecast.datasets.route import Route

Shape = Sequence[int | str | None] | None


def make_proto(
    nodes: Sequence[NodeProto],
    inputs: dict[str, Shape],
    outputs: Sequence[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 18,
    domains: dict[str, int] | None = None,
) -> ModelProto:
    """A model of float tensors."""
    stored = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph: GraphProto = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        stored,
    )
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, version) for domain, version in (domains or {}).items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Writes a model made of nodes, inputs, outputs and weights; returns its path."""

    def write(*args: object, name: str = "net.onnx", **kwargs: object) -> Path:
        path = tmp_path / name
        onnx.save_model(make_proto(*args, **kwargs), path)  # type: ignore[arg-type]
        return path

    return write


@pytest.fixture
def perceptron(save: Callable[..., Path]) -> Path:
    """Two layers with dynamic batch: x (batch, 64) -> MatMul -> Relu -> MatMul -> y (batch, 10)."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(size=(64, 32)).astype(np.float32),
        "w2": rng.normal(size=(32, 10)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"),
    ]
    return save(nodes, {"x": ["batch", 64]}, ["y"], weights)


@pytest.fixture
def external(perceptron: Path, tmp_path: Path) -> Path:
    """The perceptron with its weights in weights.bin beside it."""
    folder = tmp_path / "external"
    folder.mkdir()
    path = folder / "net.onnx"
    onnx.save_model(onnx.load(perceptron), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def make_records(count: int = 6, layers: int = 3) -> Records:
    """Measurements of one small graph, of several families and statuses."""
    nodes = tuple(
        Node("Relu", f"layer{i}", (i,), (i + 1,), {"k": [1, 2], "a": 0.5, "m": "x"}, 4.0, 32.0) for i in range(layers)
    )
    graph = Graph(nodes, tuple(Tensor((1, 4), "float32") for _ in range(layers + 1)), (0,), (layers,), 18)
    environment = Environment("onnxruntime", "1.0", "some CPU", numbers={"cores": 2.0})
    made = []
    for index in range(count):
        ok = index % 3 != 2
        timed: dict[str, object] = {}
        if ok:
            timed = {
                "latency_ms": 1.0 + index / 7,
                "default_ms": 1.5,
                "ratio": (1.0 + index / 7) / 1.5,
                "blocks_ms": (1.0, 1.25),
                "default_blocks_ms": (1.5, 1.75),
                "accuracy": {"cos": 1e-9, "l1": 0.1},
                "engine_bytes": 2**40,
                "engine_hash": "ab" * 32,
                "local_profile": tuple(LocalTime(f"layer{i}", "Relu", 0.25 * i, i) for i in range(layers)),
            }
        made.append(
            Measurement(
                graph.fingerprint,
                Route({"session.threads": str(index)}),
                environment.identity,
                Status.OK if ok else Status.BUILD_FAILED,
                model=f"net{index % 2}",
                family=("cnn", "transformer")[index % 2],
                message="" if ok else "the builder said no",
                run=f"run{index % 2}",
                **timed,  # type: ignore[arg-type]
            )
        )
    return Records(made, {graph.fingerprint: graph}, {environment.identity: environment})


@pytest.fixture
def records() -> Records:
    """Six measurements, four of them ok, with their graph and environment."""
    return make_records()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a file of a history may be made."""
    return tmp_path / "history.db"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, path: Path) -> str:
    """An empty database of each kind."""
    return str(path) if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def filled(place: str, records: Records) -> Iterator[History]:
    """A history of each kind that holds the six measurements."""
    with History(place) as history:
        assert history.import_records(records) == len(records)
        yield history


@pytest.fixture
def refused() -> Callable[..., None]:
    """Checks that opening a model fails as a usage error, with one line that holds a pattern."""

    def check(path: Path, message: str, **arguments: object) -> None:
        with pytest.raises(UsageError, match=message) as caught:
            open_model(path, **arguments)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
        assert caught.value.exit_status == 2

    return check


@pytest.fixture
def shapes_of() -> Callable[[Model], dict[str, tuple[int, ...] | None]]:
    """The shape of the first output of each node, by the node's name."""

    def shapes(model: Model) -> dict[str, tuple[int, ...] | None]:
        graph = model.graph
        return {node.name: graph.tensors[node.outputs[0]].shape for node in graph.nodes}

    return shapes
