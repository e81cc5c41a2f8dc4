from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from routecast.costmodel.calibration import Calibration, Calibrations
from routecast.costmodel.ensemble import Ensemble
from routecast.costmodel.familiarity import Familiarity
from routecast.costmodel.features import graph_features
from routecast.costmodel.forest import Forest, Nodes
from routecast.costmodel.member import Member
from routecast.costmodel.network import NetworkConfig, RouteNetwork
from routecast.costmodel.risks import Risks
from routecast.costmodel.tabular import Columns
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


def stump(columns: Columns) -> Forest:
    """One tree that asks one question: whether the first setting is there."""
    return Forest(
        columns,
        Nodes(
            roots=np.zeros(1, np.int32),
            feature=np.array([0, -1, -1], np.int16),
            threshold=np.array([0.5, 0.0, 0.0], np.float32),
            right=np.array([2, 0, 0], np.uint16),
            leaf=np.array([[0.0, 0.0], [-0.1, 0.25]], np.float16),
        ),
    )


@pytest.fixture
def ensemble(graph: Graph, environment: Environment) -> Ensemble:
    """Three untrained networks, each beside a forest made by hand, and calibrated by hand."""
    torch.manual_seed(0)
    forest = stump(Columns.of([graph_features(graph, environment)], [("session.threads", "1")]))
    risks = Risks({("session.arena", "off"): 0.02, ("session.threads", "1"): 0.01})
    members = [Member(RouteNetwork(NetworkConfig()).half().float().eval(), forest, risks) for _ in range(3)]
    return Ensemble(
        members=members,
        calibrations=Calibrations(
            ratio=Calibration.guess(0.2, nominal=0.9),
            loss=Calibration.guess(2.0, nominal=0.9),
            default=Calibration.guess(0.5, nominal=0.9),
        ),
        familiarity=Familiarity(
            ops=graph.ops,
            settings=frozenset({"session.threads=1", "session.arena=off", "optimizer.fusion=off"}),
            backends=frozenset({environment.backend}),
            devices={environment.kind: {"threads": 2.0, "peak_gflops": 100.0}},
            families=frozenset({"cnn"}),
            measurements=1000,
            models=40,
            spread=0.3,
            calibrated=True,
        ),
        training={"digest": "0" * 16},
        metrics={"spearman": 0.5},
    )
