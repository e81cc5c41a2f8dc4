from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from routecast.costmodel.calibration import Calibration
from routecast.costmodel.ensemble import Ensemble
from routecast.costmodel.familiarity import Familiarity
from routecast.costmodel.network import NetworkConfig, RouteNetwork
from routecast.datasets.environment import Environment
from routecast.datasets.graph import Graph, Node, Tensor


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def chain(ops: tuple[str, ...], width: int = 64) -> Graph:
    """Operators one after another."""
    tensors = tuple(Tensor((1, width, 14, 14), "float32") for _ in range(len(ops) + 1))
    nodes = tuple(
        Node(op, f"{op}_{index}", (index,), (index + 1,), {"group": 1}, 1e6 * width, 1e5 * width)
        for index, op in enumerate(ops)
    )
    return Graph(nodes, tensors, (0,), (len(ops),), 17)


@pytest.fixture
def graph() -> Graph:
    return chain(("Conv", "Relu", "Conv", "Add", "MatMul", "Softmax"))


@pytest.fixture
def other_graph() -> Graph:
    return chain(("MatMul", "LayerNormalization", "Gelu") * 4, width=128)


@pytest.fixture
def environment() -> Environment:
    return Environment("onnxruntime", "1.20.1", "Some CPU", numbers={"cores": 2.0, "clock_mhz": 2000.0})


@pytest.fixture
def ensemble(graph: Graph, environment: Environment) -> Ensemble:
    """Three untrained networks, calibrated by hand."""
    torch.manual_seed(0)
    members = [RouteNetwork(NetworkConfig()).half().float().eval() for _ in range(3)]
    return Ensemble(
        members=members,
        ratio=Calibration.guess(0.2, nominal=0.9),
        default=Calibration.guess(0.5, nominal=0.9),
        familiarity=Familiarity(
            ops=graph.ops,
            settings=frozenset({"session.threads=1", "session.arena=off", "optimizer.fusion=off"}),
            backends=frozenset({environment.backend}),
            devices={f"{environment.backend}/{environment.device}": {"threads": 2.0, "peak_gflops": 100.0}},
            families=frozenset({"cnn"}),
            measurements=1000,
            models=40,
            spread=0.3,
            calibrated=True,
        ),
        training={"digest": "0" * 16},
        metrics={"spearman": 0.5},
    )
