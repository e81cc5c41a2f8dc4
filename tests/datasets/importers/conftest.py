"""Files of other tools, a model they are about, and the import itself."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from routecast.datasets.importers import Imported, ImportRequest, import_files

GPU = "NVIDIA H100 PCIe"


@pytest.fixture(scope="session")
def samples() -> ModuleType:
    """The module beside this one that writes files as other tools do."""
    spec = importlib.util.spec_from_file_location("importer_samples", Path(__file__).with_name("samples.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_network(path: Path, batch: int | str = 4) -> Path:
    """A network of one product: x (batch, 64) -> y (batch, 8)."""
    weight = numpy_helper.from_array(np.zeros((64, 8), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weight],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """The model that the samples are about, beside them."""
    return write_network(tmp_path / "net.onnx")


@pytest.fixture
def load(tmp_path: Path, samples: ModuleType, network: Path) -> Callable[..., Imported]:
    """Imports one file made of lines, on a known GPU."""

    def load(lines: Iterable[Any] | str, name: str = "tuned.json", **request: Any) -> Imported:
        content = lines if isinstance(lines, str) else samples.text(lines)
        (tmp_path / name).write_text(content, encoding="utf-8")
        return import_files([tmp_path / name], ImportRequest(**{"device": GPU, **request}))

    return load
