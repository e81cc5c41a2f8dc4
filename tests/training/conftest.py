from __future__ import annotations

import math
import shutil
from collections.abc import Sequence

import numpy as np
import pytest

from routecast.datasets.environment import Environment
from routecast.datasets.graph import Graph, Node, Tensor
from routecast.datasets.measurement import LocalTime, Measurement, Purpose, Status
from routecast.datasets.records import Records
from routecast.datasets.route import Knob, Route, RouteSpace

FAMILIES = {
    "cnn": ("Conv", "Relu", "Conv", "BatchNormalization"),
    "mobile": ("Conv", "HardSwish", "Conv", "Mul"),
    "transformer": ("MatMul", "Softmax", "MatMul", "LayerNormalization", "Gelu"),
    "mixer": ("MatMul", "Gelu", "Transpose", "LayerNormalization"),
    "recurrent": ("LSTM", "MatMul", "Add"),
    "recommender": ("Gather", "Concat", "MatMul", "Relu"),
    "unet": ("Conv", "Relu", "ConvTranspose", "Concat"),
    "elementwise": ("Add", "Mul", "Relu", "Sigmoid"),
    "hybrid": ("Conv", "Relu", "MatMul", "Softmax", "LayerNormalization"),
    "sparse": ("Gather", "Add", "MatMul", "Softmax"),
}
SPACE = RouteSpace(
    (
        Knob("session.intra_op_threads", ("2", "1"), "2"),
        Knob("session.memory_pattern", ("on", "off"), "on"),
        Knob("optimizer.conv_fusion", ("on", "off"), "on"),
        Knob("optimizer.matmul_fusion", ("on", "off"), "on"),
        Knob("optimizer.gelu_fusion", ("on", "off"), "on"),
        Knob("session.layout", ("nchw", "blocked"), "nchw"),
        Knob("precision.policy", ("fp32", "int8", "int8_static"), "fp32"),
        Knob("session.graph_level", ("all", "basic", "none"), "all"),
    )
)
ENVIRONMENT = Environment("synthetic", "1.0", "Synthetic CPU", numbers={"cores": 2.0, "clock_mhz": 2500.0})


def make_graph(family: str, rng: np.random.Generator) -> Graph:
    """A chain of the family's operators, with random width and length, and skips."""
    width, length = int(rng.choice([32, 64, 96, 128, 256])), int(rng.integers(8, 50))
    tensors, nodes = [Tensor((1, width, 28, 28), "float32")], []
    for index in range(length):
        op = FAMILIES[family][index % len(FAMILIES[family])]
        heavy = op in ("Conv", "MatMul", "LSTM", "ConvTranspose")
        scale = float(rng.uniform(0.3, 3.0))
        flops = scale * (width * width * 2e3 if heavy else width * 1e3)
        tensors.append(Tensor((1, width, 28, 28), "float32"))
        inputs = (index, index - 2) if index > 3 and op in ("Add", "Mul", "Concat") else (index,)
        attributes = {"kernel_shape": [3, 3], "group": 1} if op == "Conv" else {}
        nodes.append(Node(op, f"{op}_{index}", inputs, (index + 1,), attributes, flops, width * 6e3 * scale))
    return Graph(tuple(nodes), tuple(tensors), (0,), (length,), 17)


def node_times(graph: Graph) -> np.ndarray:
    """The planted local time of each node in ms: heavy operators run nearer to the peak."""
    speed = {"Conv": 8e7, "ConvTranspose": 3e7, "MatMul": 6e7, "LSTM": 1e7}
    return np.array([node.flops / speed.get(node.op, 2e7) + node.bytes / 1e7 + 0.003 for node in graph.nodes])


def planted(graph: Graph, route: Route) -> tuple[float, bool]:
    """The planted log ratio and whether the route fails: effects follow the shares of time by operator."""
    times = node_times(graph)
    total = times.sum()

    def share(*ops: str) -> float:
        return float(sum(time for time, node in zip(times, graph.nodes, strict=True) if node.op in ops) / total)

    conv, matmul = share("Conv", "ConvTranspose"), share("MatMul", "LSTM")
    size = math.tanh(total / 10)
    effects = {
        ("session.intra_op_threads", "1"): 0.6 * size - 0.15 * (1 - size),
        ("session.memory_pattern", "off"): 0.03,
        ("optimizer.conv_fusion", "off"): 0.4 * conv,
        ("optimizer.matmul_fusion", "off"): 0.3 * matmul,
        ("optimizer.gelu_fusion", "off"): 0.8 * share("Gelu", "HardSwish"),
        ("session.layout", "blocked"): -0.35 * conv + 0.2 * matmul,
        ("precision.policy", "int8"): -0.7 * matmul + 0.3 * conv,
        ("precision.policy", "int8_static"): -0.5 * (conv + matmul) + 0.1,
        ("session.graph_level", "basic"): 0.15 * conv + 0.05,
        ("session.graph_level", "none"): 0.3 * conv + 0.2 * matmul,
    }
    value = sum(effects[setting] for setting in route.items())
    settings = set(route.items())
    if {("session.layout", "blocked"), ("precision.policy", "int8_static")} <= settings:
        value += 0.4 * conv
    fails = "Softmax" in graph.ops and route.get("precision.policy") == "int8_static"
    return value, fails


def measure(graph: Graph, route: Route, family: str, rng: np.random.Generator, noise: float = 0.01) -> Measurement:
    value, fails = planted(graph, route)
    ratio = math.exp(value + rng.normal() * noise)
    times = node_times(graph)
    default = float(times.sum() * 1.2 + 0.05)
    profile = tuple(
        LocalTime(node.name, node.op, float(time), index)
        for index, (node, time) in enumerate(zip(graph.nodes, times, strict=True))
    )
    return Measurement(
        fingerprint=graph.fingerprint,
        route=route,
        environment=ENVIRONMENT.identity,
        status=Status.INACCURATE if fails else Status.OK,
        model=f"{family}-{graph.fingerprint[:6]}",
        family=family,
        purpose=Purpose.EXPLORE if route else Purpose.CONTROL,
        latency_ms=default * ratio,
        default_ms=default,
        ratio=ratio,
        ratio_low=ratio * math.exp(-1.96 * noise),
        ratio_high=ratio * math.exp(1.96 * noise),
        build_seconds=0.5 + 0.01 * len(graph.nodes),
        local_profile=() if route else profile,
        identity=f"{graph.fingerprint[:12]}{route}",
    )


def make_records(families: Sequence[str], models: int, routes: int, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    records = Records(environments={ENVIRONMENT.identity: ENVIRONMENT})
    for family in families:
        for _ in range(models):
            graph = make_graph(family, rng)
            records.graphs[graph.fingerprint] = graph
            for route in (Route(), *SPACE.sample(routes, rng, (1, 4))):
                records.measurements.append(measure(graph, route, family, rng))
    return records


@pytest.fixture
def synthetic():  # type: ignore[no-untyped-def]
    """The generator's functions, for tests that need their own records."""
    return make_records


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):  # type: ignore[no-untyped-def]
    """An MLflow store without runs: making one takes seconds, copying one does not."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def store(empty_store, tmp_path, monkeypatch):  # type: ignore[no-untyped-def]
    """An MLflow store of the test's own, which the environment names; the user's folder is the test's too."""
    path = tmp_path / "store" / "mlflow.db"
    path.parent.mkdir()
    shutil.copy(empty_store, path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")
    monkeypatch.setenv("HOME", str(tmp_path))
    return path
