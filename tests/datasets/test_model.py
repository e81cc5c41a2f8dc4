"""Tests of opening ONNX models: what they become, and every way in which a file can be bad."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from routecast.datasets import model as model_module
from routecast.datasets.errors import UsageError
from routecast.datasets.model import Model, open_model, write_static

Save = Callable[..., Path]
REAL = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
relu = helper.make_node("Relu", ["x"], ["y"])


def shapes_of(model: Model) -> dict[str, tuple[int, ...] | None]:
    """Shape of the first output of each named node."""
    graph = model.graph
    return {node.name: graph.tensors[node.outputs[0]].shape for node in graph.nodes}


def test_a_small_network(perceptron: Path) -> None:
    model = open_model(perceptron, {"x": (8, 64)}, family="mlp")
    graph = model.graph
    assert (model.name, model.family) == ("net", "mlp")
    assert [(spec.name, spec.shape, spec.dtype) for spec in model.inputs] == [("x", (8, 64), "float32")]
    assert model.outputs == ("y",)
    assert [node.op for node in graph.nodes] == ["MatMul", "Relu", "MatMul"]
    assert shapes_of(model) == {"first": (8, 32), "relu": (8, 32), "second": (8, 10)}
    assert [node.flops for node in graph.nodes] == [2 * 8 * 64 * 32, 8 * 32, 2 * 8 * 32 * 10]
    assert graph.nodes[0].bytes == 4 * (8 * 64 + 64 * 32 + 8 * 32)
    assert graph.weight_bytes == 4 * (64 * 32 + 32 * 10)
    assert graph.edges() == [(0, 1), (1, 2)]
    assert graph.opset == 18


def test_the_fingerprint_depends_on_shapes_but_not_on_weights_names_or_their_order(save: Save) -> None:
    def network(seed: int, prefix: str, *, reverse: bool) -> Path:
        rng = np.random.default_rng(seed)
        weights = {f"{prefix}w{i}": rng.normal(size=(4, 4)).astype(np.float32) for i in range(2)}
        nodes = [
            helper.make_node("MatMul", ["x", f"{prefix}w0"], [f"{prefix}h"]),
            helper.make_node("MatMul", [f"{prefix}h", f"{prefix}w1"], ["y"]),
        ]
        ordered = dict(reversed(weights.items())) if reverse else weights
        return save(nodes, {"x": ["n", 4]}, ["y"], ordered, name=f"{prefix}.onnx")

    one = open_model(network(0, "a", reverse=False), {"x": (2, 4)}).graph
    same = open_model(network(1, "b", reverse=True), {"x": (2, 4)}).graph
    other = open_model(network(0, "a", reverse=False), {"x": (3, 4)}).graph
    assert one.fingerprint == same.fingerprint
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize("path", sorted(REAL.glob("*.onnx")), ids=lambda path: path.stem)
def test_the_real_networks_of_the_onnx_package_open(path: Path) -> None:
    model = open_model(path)
    graph = model.graph
    assert [spec.shape for spec in model.inputs] == [(1, 3, 224, 224)]
    assert all(graph.tensors[index].shape is not None for index in graph.outputs)
    # A mask that Dropout may also return is the only value without a shape.
    unknown = [node.op for node in graph.nodes if graph.tensors[node.outputs[0]].shape is None]
    assert unknown == []
    assert graph.flops > 1e8


def test_published_operation_counts_are_met() -> None:
    """ResNet-50 has 4.1 billion multiply-accumulates, VGG-19 19.6 (He et al. 2016, table 1)."""
    assert open_model(REAL / "light_resnet50.onnx").graph.flops == pytest.approx(8.2e9, rel=0.03)
    assert open_model(REAL / "light_vgg19.onnx").graph.flops == pytest.approx(39.2e9, rel=0.03)


# ---- files that are no model


def refused(path: Path, message: str, **arguments: object) -> None:
    """Checks that opening fails with one line that says so."""
    with pytest.raises(UsageError, match=message) as caught:
        open_model(path, **arguments)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


def test_missing_file(tmp_path: Path) -> None:
    refused(tmp_path / "none.onnx", "none.onnx: no such file")
    refused(tmp_path / "none" / "net.onnx", "no such file")


def test_folder(tmp_path: Path) -> None:
    refused(tmp_path, "is a folder")


def test_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    refused(tmp_path / "pipe.onnx", "not a regular file")


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").touch()
    refused(tmp_path / "net.onnx", "is empty")


def test_random_bytes(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(np.random.default_rng(0).bytes(4096))
    refused(path, "is not an ONNX file")


def test_text(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_text("version https://git-lfs.github.com/spec/v1\n")
    refused(path, "is not an ONNX file")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    refused(path, "net.onnx")


def test_truncated_anywhere(perceptron: Path) -> None:
    content = perceptron.read_bytes()
    for share in (0.05, 0.3, 0.6, 0.9, 0.999):
        perceptron.write_bytes(content[: int(len(content) * share)])
        refused(perceptron, "truncated", shapes={"x": (1, 64)})


def test_a_graph_without_operators(save: Save) -> None:
    refused(save([], {"x": [1]}, ["x"]), "holds no operators")


def test_a_graph_without_outputs(save: Save) -> None:
    refused(save([relu], {"x": [1]}, []), "has no outputs")


def test_a_file_too_large_for_protobuf(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.touch()
    os.truncate(path, 2**31)
    refused(path, "store its weights outside")


# ---- operators


def test_unknown_operator(save: Save) -> None:
    node = helper.make_node("Frobnicate", ["x"], ["y"], name="f1")
    refused(
        save([node], {"x": [1]}, ["y"]),
        r"unknown operator Frobnicate \(node 'f1'\): opset 18 of ONNX has none",
    )


def test_operator_that_is_newer_than_the_opset(save: Save) -> None:
    node = helper.make_node("Gelu", ["x"], ["y"])
    refused(save([node], {"x": [1]}, ["y"], opset=19), "unknown operator Gelu: opset 19")
    assert open_model(save([node], {"x": [1]}, ["y"], opset=20)).graph.ops == {"Gelu"}


def test_operator_that_the_opset_removed(save: Save) -> None:
    node = helper.make_node("Upsample", ["x", "s"], ["y"])
    path = save([node], {"x": [1, 1, 2, 2]}, ["y"], {"s": np.ones(4, np.float32)}, opset=11)
    refused(path, "unknown operator Upsample")


def test_unknown_operator_inside_a_subgraph(save: Save) -> None:
    body = helper.make_graph([helper.make_node("Nope", ["x"], ["b"])], "body", [], [value("b")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    refused(save([node], {"x": [1]}, ["y"], {"c": np.array(True)}), "unknown operator Nope")


def test_operators_of_onnxruntime_are_known(save: Save) -> None:
    node = helper.make_node("FastGelu", ["x"], ["y"], domain="com.microsoft")
    model = open_model(save([node], {"x": [1, 4]}, ["y"], domains={"com.microsoft": 1}))
    assert model.graph.ops == {"com.microsoft::FastGelu"}


def test_a_domain_need_not_be_imported(save: Save) -> None:
    """ONNX Runtime's own optimiser leaves the import out, and ONNX Runtime reads that."""
    nodes = [
        helper.make_node("FastGelu", ["x"], ["h"], domain="com.microsoft"),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    model = open_model(save(nodes, {"x": ["n", 4]}, ["y"]), {"x": (2, 4)})
    assert [node.op for node in model.graph.nodes] == ["com.microsoft::FastGelu", "Relu"]


def test_shapes_are_known_behind_operators_of_onnxruntime(save: Save) -> None:
    nodes = [
        helper.make_node("BiasGelu", ["x", "b"], ["h"], name="gelu", domain="com.microsoft"),
        helper.make_node("MatMul", ["h", "w"], ["y"], name="matmul"),
    ]
    weights = {"b": np.ones(4, np.float32), "w": np.ones((4, 3), np.float32)}
    path = save(nodes, {"x": ["n", 4]}, ["y"], weights, domains={"com.microsoft": 1})
    model = open_model(path, {"x": (2, 4)})
    assert shapes_of(model) == {"gelu": (2, 4), "matmul": (2, 3)}
    assert [node.op for node in model.graph.nodes] == ["com.microsoft::BiasGelu", "MatMul"]
    assert len(model.graph.nodes[0].inputs) == 2


@pytest.mark.parametrize("domain", ["com.microsoft", "my.company"])
def test_unknown_operator_of_another_domain(save: Save, domain: str) -> None:
    node = helper.make_node("Nope", ["x"], ["y"], domain=domain)
    refused(save([node], {"x": [1]}, ["y"], domains={domain: 1}), f"unknown operator {domain}::Nope; custom")


def test_opset_of_the_future(save: Save) -> None:
    refused(save([relu], {"x": [1]}, ["y"], opset=99), "uses opset 99.*pip install --upgrade onnx")


def test_own_functions_are_inlined(tmp_path: Path) -> None:
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    function = helper.make_function(
        "mine", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], imports[:1]
    )
    graph = helper.make_graph(
        [helper.make_node("Twice", ["x"], ["h"], domain="mine"), helper.make_node("Relu", ["h"], ["y"])],
        "test",
        [value("x", [2, 3])],
        [value("y")],
    )
    path = tmp_path / "net.onnx"
    onnx.save_model(
        helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=10), path
    )
    opened = open_model(path).graph
    assert [node.op for node in opened.nodes] == ["Add", "Relu"]
    assert opened.flops == 12


# ---- graphs that do not hold together


def test_value_that_nothing_computes(save: Save) -> None:
    node = helper.make_node("Add", ["x", "ghost"], ["y"], name="add")
    refused(save([node], {"x": [1]}, ["y"]), "operator Add 'add' read 'ghost', which nothing computes")


def test_output_that_nothing_computes(save: Save) -> None:
    refused(save([relu], {"x": [1]}, ["z"]), "outputs read 'z', which nothing computes")


def test_cycle(save: Save) -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="p"),
        helper.make_node("Relu", ["a"], ["b"], name="q"),
    ]
    refused(save(nodes, {"x": [1]}, ["b"]), "'p', 'q' wait for each other in a cycle")


def test_operators_out_of_order_are_sorted(save: Save) -> None:
    nodes = [helper.make_node("Relu", ["h"], ["y"]), helper.make_node("Neg", ["x"], ["h"])]
    graph = open_model(save(nodes, {"x": [1, 2]}, ["y"])).graph
    assert [node.op for node in graph.nodes] == ["Neg", "Relu"]
    assert all(tensor.shape == (1, 2) for tensor in graph.tensors)


# ---- shapes


def test_dynamic_axes_say_which_and_what_to_pass(save: Save) -> None:
    path = save([relu], {"x": ["batch", 3, None, None]}, ["y"])
    refused(
        path,
        r"input 'x' has dynamic axes 0, 2, 3 in its shape \[batch, 3, \?, \?\]; .*--shapes x:1x3x224x224",
    )
    path = save([relu], {"x": ["batch", 77]}, ["y"])
    refused(path, r"input 'x' has dynamic axis 0 in its shape \[batch, 77\]; .*--shapes x:1x77")


def test_sizes_below_one_are_dynamic(save: Save) -> None:
    refused(save([relu], {"x": [-1, 5]}, ["y"]), "dynamic axis 0")


def test_input_without_a_declared_shape(save: Save) -> None:
    path = save([relu], {"x": None}, ["y"])
    refused(path, "input 'x' has no declared shape; pass it")
    assert open_model(path, {"x": (2, 2)}).inputs[0].shape == (2, 2)


def test_a_named_size_is_fixed_everywhere(save: Save) -> None:
    path = save([helper.make_node("Add", ["a", "b"], ["y"])], {"a": ["n", 4], "b": ["n", "m"]}, ["y"])
    refused(path, r"input 'b' has dynamic axis 1 .*--shapes b:2x128", shapes={"a": (2, 4)})
    model = open_model(path, {"b": (2, 4)})
    assert [spec.shape for spec in model.inputs] == [(2, 4), (2, 4)]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"images": (1, 64)}, "has no input named 'images'; its inputs are 'x'"),
        ({"x": (64,)}, r"has 2 dimensions \(\[batch, 64\]\), got 1 \(64\)"),
        ({"x": (1, 65)}, r"axis 1 of input 'x' is fixed at 64 .*got 65"),
        ({"x": (0, 64)}, "at least 1, got 0x64"),
    ],
)
def test_shapes_that_do_not_fit(perceptron: Path, shapes: dict[str, tuple[int, ...]], message: str) -> None:
    refused(perceptron, message, shapes=shapes)


def test_operators_that_do_not_fit_the_shapes(save: Save) -> None:
    path = save(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": ["n", "k"]},
        ["y"],
        {"w": np.ones((8, 2), np.float32)},
    )
    refused(path, "do not fit together at the shapes given", shapes={"x": (1, 9)})


def test_input_that_is_no_tensor(tmp_path: Path) -> None:
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        [helper.make_node("SequenceLength", ["x"], ["y"])], "test", [sequence], [value("y")]
    )
    path = tmp_path / "net.onnx"
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    refused(path, "input 'x' is a sequence; only tensors can be fed")


def test_initialisers_listed_as_inputs_are_not_fed(save: Save) -> None:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = open_model(save([node], {"x": [2], "w": [2]}, ["y"], {"w": np.ones(2, np.float32)}))
    assert [spec.name for spec in model.inputs] == ["x"]
    assert model.graph.tensors[model.graph.nodes[0].inputs[1]].constant


def value(name: str, shape: list[int] | None = None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def test_shape_computations_are_followed(save: Save) -> None:
    """A size taken from Shape makes a Range, whose greatest value sets the shape of a Reshape."""
    constants = {"zero": np.array(0), "one": np.array(1), "two": np.array([2]), "minus": np.array([-1])}
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], name="shape"),
        helper.make_node("Gather", ["s", "zero"], ["n"], name="gather"),
        helper.make_node("Range", ["zero", "n", "one"], ["r"], name="range"),
        helper.make_node("ReduceMax", ["r"], ["top"], name="max", keepdims=1),
        helper.make_node("Concat", ["two", "top", "minus"], ["target"], name="concat", axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"], name="reshape"),
    ]
    model = open_model(save(nodes, {"x": ["n", 12]}, ["y"], constants), {"x": (4, 12)})
    assert shapes_of(model)["range"] == (4,)
    assert shapes_of(model)["reshape"] == (2, 3, 8)
    assert [node.op for node in model.graph.nodes] == [node.op_type for node in nodes]


def test_nodes_of_subgraphs_follow_their_holder(save: Save) -> None:
    inner = helper.make_node("Mul", ["x", "k"], ["t"], name="inner")
    then = helper.make_graph(
        [inner], "then", [], [value("t")], [numpy_helper.from_array(np.float32([2.0]), "k")]
    )
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["e"], name="neg")], "else", [], [value("e")])
    nodes = [
        helper.make_node("If", ["c"], ["h"], name="if", then_branch=then, else_branch=other),
        helper.make_node("Relu", ["h"], ["y"], name="relu"),
    ]
    model = open_model(save(nodes, {"x": [1, 4]}, ["y"], {"c": np.array(True)}))
    found = {node.name: (node.op, node.depth) for node in model.graph.nodes}
    assert sorted(found.items()) == [
        ("if", ("If", 0)),
        ("inner", ("Mul", 1)),
        ("neg", ("Neg", 1)),
        ("relu", ("Relu", 0)),
    ]
    assert [node.depth for node in model.graph.nodes] == [0, 1, 1, 0]
    assert shapes_of(model)["inner"] == (1, 4)
    assert shapes_of(model)["relu"] == (1, 4)


def test_attributes_are_small_and_types_are_named_as_numpy_does(tmp_path: Path) -> None:
    constant = helper.make_tensor("t", TensorProto.INT64, [2], [1, 2])
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16),
        helper.make_node("Constant", [], ["axes"], value=constant),
        helper.make_node("Unsqueeze", ["h", "axes"], ["u"]),
        helper.make_node("Cast", ["u"], ["y"], to=TensorProto.FLOAT8E4M3FN),
        helper.make_node(
            "TreeEnsembleRegressor",
            ["x"],
            ["z"],
            domain="ai.onnx.ml",
            nodes_values=[0.5] * 17,
            base_values=[1.0],
        ),
    ]
    outputs = [value("y", None, TensorProto.FLOAT8E4M3FN), value("z")]
    graph = helper.make_graph(nodes, "test", [value("x", [3, 4])], outputs)
    path = tmp_path / "net.onnx"
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save_model(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    opened = open_model(path).graph
    assert opened.nodes[0].attributes == {"to": TensorProto.BFLOAT16}
    assert [node.op for node in opened.nodes[:3]] == ["Cast", "Unsqueeze", "Cast"]
    assert [opened.tensors[node.outputs[0]].dtype for node in opened.nodes[:3]] == [
        "bfloat16",
        "bfloat16",
        "float8_e4m3fn",
    ]
    assert opened.nodes[3].attributes == {"base_values": [1.0]}
    assert opened.tensors[opened.nodes[1].inputs[1]].constant


# ---- external data


@pytest.fixture
def external(perceptron: Path, tmp_path: Path) -> Path:
    """The perceptron with its weights in weights.bin beside it."""
    folder = tmp_path / "external"
    folder.mkdir()
    path = folder / "net.onnx"
    onnx.save_model(
        onnx.load(perceptron), path, save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    return path


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
    path = save(
        [helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": [2, 6]}, ["y"], {"s": np.array([3, 4])}
    )
    onnx.save_model(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    graph = open_model(path).graph
    assert graph.tensors[graph.outputs[0]].shape == (3, 4)


def test_external_data_missing(external: Path) -> None:
    (external.parent / "weights.bin").unlink()
    refused(external, "external data 'weights.bin' .tensor 'w1'. is missing", shapes={"x": (1, 64)})


def test_external_data_too_short(external: Path) -> None:
    os.truncate(external.parent / "weights.bin", 1000)
    refused(external, "of weights.bin, which has 1000", shapes={"x": (1, 64)})


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/hostname", "sub/../../weights.bin"])
def test_external_data_outside_the_folder(external: Path, location: str) -> None:
    (external.parent / "weights.bin").rename(external.parent.parent / "weights.bin")
    move_data(external, location=location)
    refused(external, "outside the model's folder", shapes={"x": (1, 64)})


def test_external_data_through_a_link_out_of_the_folder(external: Path) -> None:
    inside, outside = external.parent / "weights.bin", external.parent.parent / "elsewhere.bin"
    inside.rename(outside)
    inside.symlink_to(outside)
    refused(external, "outside the model's folder", shapes={"x": (1, 64)})


@pytest.mark.parametrize("facts", [{"offset": "-8"}, {"length": "many"}, {"location": ""}])
def test_external_data_described_wrongly(external: Path, facts: dict[str, str]) -> None:
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


# ---- writing


def run(path: Path, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": x})
    return np.asarray(result)


@pytest.mark.parametrize("limit", [model_module.INLINE_LIMIT, 100])
def test_the_static_model_computes_the_same(
    external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(model_module, "INLINE_LIMIT", limit)
    model = open_model(external, {"x": (3, 64)})
    for _ in range(2):  # the second time over the first's files
        target = write_static(model, tmp_path / "made" / "here")
    assert target == tmp_path / "made" / "here" / "model.onnx"
    assert (target.parent / "model.onnx.data").exists() == (limit == 100)
    proto = onnx.load(target)
    onnx.checker.check_model(proto, full_check=True)
    again = open_model(target)
    assert again.graph == model.graph
    assert again.inputs == model.inputs
    x = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)
    np.testing.assert_array_equal(run(target, x), run(external, x))


def test_writing_what_has_changed_meanwhile_fails(perceptron: Path, tmp_path: Path) -> None:
    model = open_model(perceptron, {"x": (3, 64)})
    perceptron.unlink()
    with pytest.raises(UsageError, match="no such file"):
        write_static(model, tmp_path / "out")


def test_a_network_of_600_operators_and_50_megabytes_opens_fast(save: Save) -> None:
    rng = np.random.default_rng(0)
    width, layers = 200, 300
    weights = {f"w{i}": rng.normal(size=(width, width)).astype(np.float32) for i in range(layers)}
    nodes = []
    for index in range(layers):
        nodes.append(helper.make_node("MatMul", [f"r{index}", f"w{index}"], [f"h{index}"]))
        nodes.append(helper.make_node("Relu", [f"h{index}"], [f"r{index + 1}"]))
    path = save(nodes, {"r0": ["n", width]}, [f"r{layers}"], weights)
    assert path.stat().st_size > 45e6
    started = time.process_time()
    graph = open_model(path, {"r0": (4, width)}).graph
    assert time.process_time() - started < 2
    assert graph.flops == layers * (2 * 4 * width * width + 4 * width)
    assert math.isclose(graph.weight_bytes, 4 * layers * width * width)


def test_messages_name_the_file(perceptron: Path) -> None:
    refused(perceptron, re.escape(str(perceptron)))
