from __future__ import annotations

import base64
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import onnx
import pandas
import pytest
from mlflow.exceptions import MlflowException
from onnx import TensorProto, helper

from routecast.costmodel import BUILTIN
from routecast.costmodel.storage import SCHEMA
from routecast.datasets.zoo import network
from routecast.training.serving import CODE_NAME, add_pyfunc
from routecast.tuner import serving
from routecast.tuner.results import RoutePrediction

H200 = {"backend": "tensorrt", "backend_version": "11.1.0", "device": "NVIDIA H200", "numbers": {"clock_mhz": 1980}}
ROUTES = ["session.intra_op_threads=1", "", "pass.onnxslim=on session.memory_pattern=off"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped weights as an MLflow model."""
    made = tmp_path_factory.mktemp("served") / "model"
    shutil.copytree(BUILTIN, made, ignore=shutil.ignore_patterns("__*"))
    add_pyfunc(made)
    return made


@pytest.fixture(scope="module")
def served(folder: Path) -> Any:
    return mlflow.pyfunc.load_model(str(folder))


@pytest.fixture(scope="module")
def squeezenet(tmp_path_factory: pytest.TempPathFactory) -> str:
    return encoded(network("onnx_squeezenet").make(tmp_path_factory.mktemp("zoo")).read_bytes())


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def rank(served: Any, *rows: dict[str, Any], **params: Any) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = served.predict(pandas.DataFrame(list(rows)), params=params)
    return answer


def small(**graph: Any) -> onnx.ModelProto:
    """y = relu(x), with more in its graph or model."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy")
    nodes = graph.pop("nodes", [helper.make_node("Relu", ["x"], ["y"])])
    functions = graph.pop("functions", [])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    made = helper.make_graph(nodes, "small", [x], [y], **graph)
    return helper.make_model(made, functions=functions, opset_imports=opsets, ir_version=8)


def refused(served: Any, text: str, **row: Any) -> str:
    """The one line with which a request is refused."""
    params = row.pop("params", {})
    with pytest.raises(MlflowException, match=text) as caught:
        rank(served, row, **params)
    assert caught.value.error_code == "INVALID_PARAMETER_VALUE"
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_nothing_is_pickled(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert {"MLmodel", CODE_NAME, "weights.safetensors", "model.json"} <= names
    assert not [name for name in names if name.endswith((".pkl", ".pickle", ".pt", ".bin", ".joblib"))]
    assert "python_model:" not in (folder / "MLmodel").read_text()
    assert [line.split("==")[0] for line in (folder / "requirements.txt").read_text().split()] == [
        "mlflow",
        "routecast",
    ]


def test_given_routes_are_ranked_for_a_given_place(served: Any, squeezenet: str) -> None:
    (ranking,) = rank(served, {"model": squeezenet, "routes": ROUTES, "environment": H200})
    assert sorted(item["route"] for item in ranking["routes"]) == sorted(ROUTES)
    found = [RoutePrediction.from_json(item) for item in ranking["routes"]]
    assert found == sorted(found, key=lambda item: item.promise)
    assert all(item["ratio_low"] <= item["ratio"] <= item["ratio_high"] for item in ranking["routes"])
    assert all(0 <= item["failure"] <= 1 and item["latency_ms"] > 0 for item in ranking["routes"])
    assert ranking["device"] == "NVIDIA H200"
    assert any("tensorrt was never measured" in line for line in ranking["warnings"])


def test_without_routes_a_pool_is_drawn_from_the_space_here(served: Any, squeezenet: str) -> None:
    (ranking,) = rank(served, {"model": squeezenet}, top=3, pool=30)
    assert (ranking["scored"], len(ranking["routes"])) == (30, 3)
    assert ranking == rank(served, {"model": squeezenet}, top=3, pool=30)[0]


def test_rows_may_lack_what_others_have(served: Any, squeezenet: str) -> None:
    dynamic = {"model": encoded(small().SerializeToString()), "shapes": {"x": [2, 4]}}
    first, second = rank(served, {**dynamic, "routes": [""]}, {"model": squeezenet, "routes": ROUTES[:1]})
    assert (first["scored"], second["scored"]) == (1, 1)


def test_another_process_saves_and_loads_it_without_a_word(folder: Path, tmp_path: Path) -> None:
    """In another folder, and after the code that saved the model is gone: it needs nothing but routecast."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    code = (
        "from pathlib import Path\n"
        "from routecast.training.serving import add_pyfunc\n"
        "add_pyfunc(Path('again'))\n"
        "import mlflow\n"
        f"print(mlflow.pyfunc.load_model({str(copy)!r}).metadata.get_input_schema().input_names())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "['model', 'shapes', 'backend', 'environment', 'routes']\n"
    assert (tmp_path / "again" / CODE_NAME).exists()


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({}, "needs a model"),
        ({"model": "no base64!"}, "is not base64"),
        ({"model": encoded(b"hello")}, "^the model is not an ONNX file"),
        ({"model": encoded(small().SerializeToString()[:-20])}, "^the model .*(truncated|damaged)"),
        ({"shapes": {"x": [0, 4]}}, "size of a shape must be above 0"),
        ({"shapes": {"no": [1, 4]}}, "no"),
        ({}, "x"),
        ({"backend": "nonsense"}, "unknown backend 'nonsense'"),
        ({"backend": "os:system"}, "unknown backend 'os:system'"),
        ({"backend": "onnxruntime", "environment": H200}, "of backend tensorrt, but onnxruntime was asked for"),
        ({"environment": {"backend": "own:Backend", "backend_version": "1", "device": "d"}}, "unknown backend"),
        ({"environment": "H200"}, "an environment has a backend"),
        ({"environment": {"backend": "tensorrt"}}, "an environment has a backend"),
        ({"environment": {**H200, "numbers": {"clock_mhz": "fast"}}}, "an environment has a backend"),
        ({"environment": {**H200, "numbers": {"clock_mhz": float("inf")}}}, "finite numbers"),
        ({"environment": {**H200, "device": 3}}, "made of texts"),
        ({"routes": []}, "between 1 and"),
        ({"routes": "a=1"}, "routes are a list of texts"),
        ({"shapes": [1, 4]}, "lists of sizes by input name"),
        ({"routes": ["no equals sign"]}, "made of name=value settings"),
        ({"routes": ["a=" + "1" * 5000]}, "a text of at most"),
        ({"routes": ["a=1"] * (serving.MOST_ROUTES + 1)}, "between 1 and 10000 routes, got 10001"),
        ({"params": {"top": 0}}, "top must be between 1 and"),
        ({"params": {"pool": 10**9}}, "pool must be between 2 and"),
    ],
)
def test_what_cannot_be_met_is_one_line(served: Any, row: dict[str, Any], text: str) -> None:
    whole = {} if text == "needs a model" else {"model": encoded(small().SerializeToString())}
    if text == "needs a model":
        row = {"model": ""}
    said = refused(served, text, **{**whole, **row})
    assert "/tmp" not in said  # nothing of the server's own


def test_external_data_is_refused(served: Any) -> None:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4], np.zeros(4))
    weight.ClearField("float_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="/etc/passwd")
    proto = small(nodes=[helper.make_node("Add", ["x", "w"], ["y"])], initializer=[weight])
    refused(
        served, "keeps weights in other files, which a request cannot hold", model=encoded(proto.SerializeToString())
    )


def test_a_large_model_is_refused_before_it_is_decoded(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "LARGEST_MODEL", 30)
    refused(served, "more than 30 bytes", model=encoded(small().SerializeToString()))


def test_many_models_in_one_request_are_refused(served: Any) -> None:
    with pytest.raises(MlflowException, match="at most 16 models, got 17"):
        rank(served, *([{"model": "x"}] * 17))


def doubling(depth: int) -> onnx.ModelProto:
    """Functions that each call the next twice: 2^depth operators once they are written out."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]

    def function(level: int) -> onnx.FunctionProto:
        op, domain = ("Relu", "") if level == depth else (f"f{level + 1}", "own")
        nodes = [helper.make_node(op, ["a"], ["b"], domain=domain), helper.make_node(op, ["b"], ["c"], domain=domain)]
        return helper.make_function("own", f"f{level}", ["a"], ["c"], nodes, opsets)

    nodes = [helper.make_node("f1", ["x"], ["y"], domain="own")]
    return small(nodes=nodes, functions=[function(level) for level in range(1, depth + 1)])


def test_functions_that_write_out_to_enormous_graphs_are_refused(served: Any) -> None:
    bomb = encoded(doubling(60).SerializeToString())
    refused(served, f"has {2**60} operators", model=bomb, shapes={"x": [1, 4]})
    (ranking,) = rank(
        served, {"model": encoded(doubling(3).SerializeToString()), "shapes": {"x": [1, 4]}, "routes": [""]}
    )
    assert ranking["scored"] == 1


def test_a_function_that_calls_itself_is_refused(served: Any) -> None:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    call = helper.make_node("loop", ["a"], ["b"], domain="own")
    proto = small(
        nodes=[helper.make_node("loop", ["x"], ["y"], domain="own")],
        functions=[helper.make_function("own", "loop", ["a"], ["b"], [call], opsets)],
    )
    refused(served, "calls itself", model=encoded(proto.SerializeToString()))


def test_weights_of_another_schema_are_refused_when_the_model_is_loaded(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "old"
    shutil.copytree(folder, copy)
    path = copy / "model.json"
    path.write_text(path.read_text().replace(f'"schema": {SCHEMA}', '"schema": 0'))
    with pytest.raises(Exception, match=f"has schema 0, this version reads schema {SCHEMA}"):
        mlflow.pyfunc.load_model(str(copy))
