"""Tests of reading ONNX files: every way in which one can be bad, and external data."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from routecast.datasets.model import open_model

Save = Callable[..., Path]
Refused = Callable[..., None]
relu = helper.make_node("Relu", ["x"], ["y"])


def test_missing_file(tmp_path: Path, refused: Refused) -> None:
    refused(tmp_path / "none.onnx", "none.onnx: no such file")
    refused(tmp_path / "none" / "net.onnx", "no such file")


def test_folder(tmp_path: Path, refused: Refused) -> None:
    refused(tmp_path, "is a folder")


def test_pipe(tmp_path: Path, refused: Refused) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    refused(tmp_path / "pipe.onnx", "not a regular file")


def test_empty_file(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "net.onnx").touch()
    refused(tmp_path / "net.onnx", "is empty")


def test_random_bytes(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(np.random.default_rng(0).bytes(4096))
    refused(path, "is not an ONNX file")


def test_text(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "net.onnx"
    path.write_text("version https://git-lfs.github.com/spec/v1\n")
    refused(path, "is not an ONNX file")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_one_line(tmp_path: Path, refused: Refused, content: bytes) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    refused(path, "net.onnx")


def test_truncated_anywhere(perceptron: Path, refused: Refused) -> None:
    content = perceptron.read_bytes()
    for share in (0.05, 0.3, 0.6, 0.9, 0.999):
        perceptron.write_bytes(content[: int(len(content) * share)])
        refused(perceptron, "truncated", shapes={"x": (1, 64)})


def test_a_graph_without_operators(save: Save, refused: Refused) -> None:
    refused(save([], {"x": [1]}, ["x"]), "holds no operators")


def test_a_graph_without_outputs(save: Save, refused: Refused) -> None:
    refused(save([relu], {"x": [1]}, []), "has no outputs")


def test_a_file_too_large_for_protobuf(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "net.onnx"
    path.touch()
    os.truncate(path, 2**31)
    refused(path, "store its weights outside")


def move_data(path: Path, **facts: str) -> None:
    """Changes where the tensors of a model say that their data is."""
    proto = onnx.load(path, load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            entry.value = facts.get(entry.key, entry.value)
    path.write_bytes(proto.SerializeToString())


def test_external_data_changes_nothing(perceptron: Path, external: Path) -> None:
    inside, outside = (open_model(path, {"x": (2, 64)}).graph for path in (perceptron, external))
    assert inside == outside


def test_small_external_tensors_are_read(save: Save) -> None:
    path = save([helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": [2, 6]}, ["y"], {"s": np.array([3, 4])})
    onnx.save_model(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    graph = open_model(path).graph
    assert graph.tensors[graph.outputs[0]].shape == (3, 4)


def test_external_data_missing(external: Path, refused: Refused) -> None:
    (external.parent / "weights.bin").unlink()
    refused(external, "external data 'weights.bin' .tensor 'w1'. is missing", shapes={"x": (1, 64)})


def test_external_data_too_short(external: Path, refused: Refused) -> None:
    os.truncate(external.parent / "weights.bin", 1000)
    refused(external, "of weights.bin, which has 1000", shapes={"x": (1, 64)})


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/hostname", "sub/../../weights.bin"])
def test_external_data_outside_the_folder(external: Path, location: str, refused: Refused) -> None:
    (external.parent / "weights.bin").rename(external.parent.parent / "weights.bin")
    move_data(external, location=location)
    refused(external, "outside the model's folder", shapes={"x": (1, 64)})


def test_external_data_through_a_link_out_of_the_folder(external: Path, refused: Refused) -> None:
    inside, outside = external.parent / "weights.bin", external.parent.parent / "elsewhere.bin"
    inside.rename(outside)
    inside.symlink_to(outside)
    refused(external, "outside the model's folder", shapes={"x": (1, 64)})


@pytest.mark.parametrize("facts", [{"offset": "-8"}, {"length": "many"}, {"location": ""}])
def test_external_data_described_wrongly(external: Path, facts: dict[str, str], refused: Refused) -> None:
    move_data(external, **facts)
    refused(external, "tensor 'w1'", shapes={"x": (1, 64)})


def test_weights_of_more_than_two_gigabytes_open_without_being_read(save: Save, tmp_path: Path) -> None:
    path = save([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [1, 30000]}, ["y"])
    proto = onnx.load(path)
    tensor = proto.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[30000, 20000])
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in {"location": "w.bin", "offset": "0", "length": str(30000 * 20000 * 4)}.items():
        tensor.external_data.add(key=key, value=text)
    path.write_bytes(proto.SerializeToString())
    (tmp_path / "w.bin").touch()
    os.truncate(tmp_path / "w.bin", 30000 * 20000 * 4)  # a sparse file
    started = time.process_time()
    assert open_model(path).graph.weight_bytes == 2_400_000_000
    assert time.process_time() - started < 2
