from __future__ import annotations

import numpy as np
import pytest

from routecast.datasets.errors import UsageError
from routecast.datasets.route import Route
from routecast.tuner.backends.base import Artifact, BuildFailed, BuildRequest, LoadFailed
from routecast.tuner.backends.onnxruntime.backend import OnnxRuntimeBackend
from routecast.tuner.backends.onnxruntime.knobs import Machine
from routecast.tuner.backends.registry import backend_names, get_backend

MACHINE = Machine(cores=2, architecture="x86_64")
GELU_KNOBS = {"pass.transformers", "optimizer.GeluFusion", "session.gelu_approximation"}


@pytest.fixture
def backend():
    return OnnxRuntimeBackend(MACHINE)


def build(backend, network, folder, route, calibration=None):
    sets = network.calibration if calibration is None else calibration
    return backend.build(BuildRequest(network.static, route, folder, sets))


def outputs(backend, network, folder, route):
    with backend.load(build(backend, network, folder, route), route, network.static) as executable:
        return executable.run(network.inputs)


def cosine_loss(value, expected):
    value, expected = value.ravel(), expected.ravel()
    return 1 - float(value @ expected / np.linalg.norm(value) / np.linalg.norm(expected))


def test_registry_knows_the_backend():
    assert "onnxruntime" in backend_names()
    assert get_backend("onnxruntime").name == "onnxruntime"


def test_registry_refuses_an_unknown_name():
    with pytest.raises(UsageError, match="choose one of .*onnxruntime"):
        get_backend("openvino")


@pytest.mark.parametrize("network", ["conv_network", "attention_network"])
def test_space_is_large(backend, network, request):
    space = backend.space(request.getfixturevalue(network).model)
    assert len(space.knobs) >= 12
    assert space.size >= 1000
    assert len(space.sample(1000, np.random.default_rng(0))) == 1000


def test_space_holds_only_what_can_matter(backend, conv_network, attention_network, chain_network):
    conv = backend.space(conv_network.model)
    attention = backend.space(attention_network.model)
    chain = backend.space(chain_network.model)
    assert {"optimizer.ConvBNFusion", "optimizer.NchwcTransformer"} <= conv.by_name.keys()
    assert GELU_KNOBS <= conv.left_out.keys()
    assert GELU_KNOBS <= attention.by_name.keys()
    assert "optimizer.NchwcTransformer" in attention.left_out
    assert "extended" in conv.by_name["session.graph_optimization_level"].values
    assert "extended" not in attention.by_name["session.graph_optimization_level"].values
    assert "only_conv" in conv.by_name["precision.exclude"].values
    assert {"precision.policy", "session.execution_mode", "session.qdq_cleanup"} <= chain.left_out.keys()
    for space in (conv, attention, chain):
        assert not space.by_name.keys() & space.left_out.keys()
        assert all(reason for reason in space.left_out.values())
        assert all(knob.help and "\n" not in knob.help for knob in space.knobs)


def test_every_backend_knob_is_offered_or_explained(backend, conv_network, attention_network, chain_network):
    spaces = [backend.space(network.model) for network in (conv_network, attention_network, chain_network)]
    mentioned = [space.by_name.keys() | space.left_out.keys() for space in spaces]
    assert mentioned[0] == mentioned[1] == mentioned[2]


def test_space_without_numerics_keeps_results(backend, conv_network):
    space = backend.space(conv_network.model, allow_numerics=False)
    assert not any(knob.changes_numerics for knob in space.knobs)
    assert "precision.policy" in space.left_out
    assert "optimizer.NhwcTransformer" in space.left_out  # acts under static_int8 only


def test_one_core_leaves_no_choice_of_sharing(conv_network):
    space = OnnxRuntimeBackend(Machine(1, "x86_64")).space(conv_network.model)
    sharing = {"session.allow_spinning", "session.execution_mode", "session.dynamic_block_base"}
    assert sharing <= space.left_out.keys()


def test_thread_counts_are_powers_of_two_and_the_cores(conv_network):
    space = OnnxRuntimeBackend(Machine(6, "x86_64")).space(conv_network.model)
    assert space.by_name["session.intra_op_threads"].values == ("default", "1", "2", "4", "6")


def test_default_route_is_the_model_itself(backend, conv_network, tmp_path):
    artifact = build(backend, conv_network, tmp_path, Route())
    assert artifact.path == conv_network.static
    assert artifact.bytes == conv_network.static.stat().st_size
    assert artifact == Artifact.of(conv_network.static, artifact.build_seconds)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["conv_network", "attention_network"])
def test_every_single_change_computes_the_same(backend, network, request, tmp_path):
    network = request.getfixturevalue(network)
    space = backend.space(network.model)
    expected = outputs(backend, network, tmp_path, Route())
    for index, route in enumerate(space.single_changes()):
        (folder := tmp_path / str(index)).mkdir()
        found = outputs(backend, network, folder, route)
        assert found.keys() == expected.keys()
        limit = 1e-2 if any(space.by_name[name].changes_numerics for name in route) else 1e-6
        assert cosine_loss(found["y"], expected["y"]) < limit, route


@pytest.mark.parametrize(
    "text",
    [
        "pass.onnxslim=on",
        "pass.onnxscript=fold",
        "precision.policy=static_int8",
        "precision.policy=static_int8 precision.calibration=entropy precision.per_channel=on",
        "precision.policy=static_int8 precision.activation_type=int8 precision.exclude=only_weighted",
        "pass.onnxslim=on precision.policy=static_int8",
        "precision.policy=dynamic_int8 precision.exclude=only_matmul",
        "precision.policy=dynamic_int8",
    ],
)
def test_builds_change_the_artifact_and_keep_the_meaning(backend, conv_network, tmp_path, text):
    route = backend.space(conv_network.model).canonical(Route.parse(text))
    artifact = build(backend, conv_network, tmp_path, route)
    assert artifact.hash != Artifact.of(conv_network.static, 0).hash
    found = backend.load(artifact, route, conv_network.static).run(conv_network.inputs)
    expected = outputs(backend, conv_network, tmp_path, Route())
    assert cosine_loss(found["y"], expected["y"]) < 1e-2
    if "policy" in text:
        assert not np.array_equal(found["y"], expected["y"])


def test_calibration_methods_differ(backend, conv_network, tmp_path):
    hashes = set()
    for method in ("minmax", "entropy", "percentile"):
        (folder := tmp_path / method).mkdir()
        route = Route.parse(f"precision.policy=static_int8 precision.calibration={method}")
        hashes.add(build(backend, conv_network, folder, route).hash)
    assert len(hashes) == 3


def test_static_quantisation_needs_input_sets(backend, conv_network, tmp_path):
    with pytest.raises(BuildFailed, match="input sets") as caught:
        build(backend, conv_network, tmp_path, Route.parse("precision.policy=static_int8"), calibration=())
    assert "\n" not in str(caught.value)


def test_a_broken_artifact_fails_to_load_in_one_line(backend, conv_network, tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    artifact = Artifact.of(tmp_path / "model.onnx", 0)
    with pytest.raises(LoadFailed) as caught:
        backend.load(artifact, Route(), conv_network.static)
    assert "\n" not in str(caught.value)
    assert "model.onnx" in str(caught.value)


def test_wrong_input_shape_is_a_load_failure(backend, conv_network, tmp_path):
    executable = backend.load(build(backend, conv_network, tmp_path, Route()), Route(), conv_network.static)
    with pytest.raises(LoadFailed, match="dimension"):
        executable.run({"x": np.zeros((1, 3, 5, 5), np.float32)})


def test_timing_needs_prepared_inputs(backend, conv_network, tmp_path):
    executable = backend.load(build(backend, conv_network, tmp_path, Route()), Route(), conv_network.static)
    with pytest.raises(LoadFailed, match="prepare"):
        executable.time(1)
    executable.prepare(conv_network.inputs)
    assert 0 < executable.time(3) < 1000
    executable.close()
    with pytest.raises(LoadFailed, match="closed"):
        executable.run(conv_network.inputs)


@pytest.mark.parametrize("text", ["", "precision.policy=static_int8", "session.graph_optimization_level=disabled"])
def test_profile_finds_the_nodes(backend, conv_network, tmp_path, text):
    route = Route.parse(text)
    artifact = build(backend, conv_network, tmp_path, route)
    names = {node.name: index for index, node in enumerate(conv_network.model.graph.nodes)}
    with backend.load(artifact, route, conv_network.static, profiling=True) as executable:
        executable.prepare(conv_network.inputs)
        layers = executable.profile(3, names)
    assert {names["conv1"], names["conv2"], names["fc"]} <= {layer.node for layer in layers}
    assert sum(layer.node >= 0 for layer in layers) >= len(layers) / 2
    assert sum(layer.ms for layer in layers) > 0
    if not route.is_default and "disabled" in text:
        assert [layer.node for layer in layers] == list(range(9))


def test_only_a_profiling_session_can_be_profiled(backend, conv_network, tmp_path):
    executable = backend.load(build(backend, conv_network, tmp_path, Route()), Route(), conv_network.static)
    executable.prepare(conv_network.inputs)
    with pytest.raises(LoadFailed, match="profiling=True"):
        executable.profile(1)


def test_checks_pass_here(backend):
    checks = backend.checks()
    assert {"onnxruntime", "onnx"} <= {check.what for check in checks}
    assert all(check.ok and not check.fix for check in checks)


def test_environment_describes_this_machine(backend):
    first, second = backend.environment(), OnnxRuntimeBackend().environment()
    assert first.identity == second.identity
    assert first.device
    assert first.versions["onnxruntime"] == first.backend_version
    assert first.numbers["threads"] >= 1
    assert first.numbers["peak_gflops"] > 0
    assert first.numbers["bandwidth_gbs"] > 0


def test_builds_print_nothing(backend, attention_network, tmp_path, capfd):
    route = Route.parse(
        "pass.onnxscript=rewrite pass.onnxslim=on pass.transformers=bert "
        "precision.calibration=entropy precision.policy=static_int8"
    )
    outputs(backend, attention_network, tmp_path, route)
    assert capfd.readouterr().out == ""
