"""Real engines, built ahead of time for SM89 without a GPU, where the TensorRT-RTX wheels are installed."""

from __future__ import annotations

import os

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

from routecast.datasets.errors import MissingPackage
from routecast.datasets.model import open_model
from routecast.datasets.route import Route
from routecast.tuner.backends.base import BuildFailed, BuildRequest, LoadFailed
from routecast.tuner.backends.tensorrt.api import TENSORRT_RTX
from routecast.tuner.backends.tensorrt.backend import TensorRtRtx
from routecast.tuner.backends.tensorrt.channel import OPT_IN, VARIABLE
from routecast.tuner.backends.tensorrt.environment import gpu_facts, installed
from routecast.tuner.cli import app
from routecast.tuner.passes.modelopt import modelopt_missing

pytestmark = pytest.mark.skipif(
    not TENSORRT_RTX.installed(),
    reason="the TensorRT-RTX wheels are not installed: pip install 'routecast[tensorrt-rtx]'",
)

BLOCK = """
<ir_version: 8, opset_import: ["" : 17]>
network (float[2,16,32] x) => (float[2,16,32] y) {
    n = LayerNormalization<axis = -1>(x, scale, bias)
    q = MatMul(n, wq)
    k = MatMul(n, wk)
    v = MatMul(n, wv)
    t = Transpose<perm = [0, 2, 1]>(k)
    s = MatMul(q, t)
    p = Softmax<axis = -1>(s)
    a = MatMul(p, v)
    y = Add(a, x)
}
"""


@pytest.fixture
def network(tmp_path):
    """One attention block."""
    proto = onnx.parser.parse_model(BLOCK)
    rng = np.random.default_rng(0)
    for name, shape in {
        "scale": (32,),
        "bias": (32,),
        "wq": (32, 32),
        "wk": (32, 32),
        "wv": (32, 32),
    }.items():
        array = (0.1 * rng.normal(size=shape)).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    path = tmp_path / "network.onnx"
    onnx.save(proto, path)
    np.savez(tmp_path / "inputs.npz", x=rng.normal(size=(2, 16, 32)).astype(np.float32))
    return path


@pytest.fixture
def backend():
    return TensorRtRtx("SM89")


@pytest.fixture
def build(backend, network, tmp_path):
    def built(route: str = ""):
        folder = tmp_path / f"build-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return backend.build(BuildRequest(network, Route.parse(route), folder, (tmp_path / "inputs.npz",)))

    return built


def test_builds_are_reproducible_and_for_the_capability_asked(build, network, tmp_path):
    first, second = build(), build()
    assert first.bytes > 1000
    assert first.hash == second.hash
    (tmp_path / "other").mkdir()
    other = TensorRtRtx("SM80").build(BuildRequest(network, Route(), tmp_path / "other"))
    assert other.hash != first.hash


@pytest.mark.parametrize(
    "route",
    [
        "precision.policy=fp16",
        "precision.policy=bf16",
        "precision.policy=fp16 precision.keep=risky",
        "precision.quantize=int8",
        "form.layernorm=lower",
        "form.merge_projections=on",
        "form.opset=20 precision.policy=fp16",
        "builder.tf32=off",
    ],
)
def test_routes_change_the_engine(build, route):
    assert build(route).hash != build().hash


def test_a_compiler_knob_changes_the_engine_and_leaves_nothing_behind(build, monkeypatch):
    monkeypatch.setenv(OPT_IN, "1")
    monkeypatch.setenv(VARIABLE, "-of=theirs")
    default = build().hash
    changed = build("compiler.kgen:fuse_reduction=off").hash
    assert changed != default
    assert build().hash == default

    assert os.environ[VARIABLE] == "-of=theirs"


def test_compiler_knobs_are_an_opt_in(backend, build, network, monkeypatch):
    monkeypatch.delenv(OPT_IN, raising=False)
    model = open_model(network)
    space = backend.space(model)
    assert not any(knob.group == "compiler" for knob in space.knobs)
    assert OPT_IN in space.left_out["compiler"]
    assert VARIABLE in space.left_out["compiler"]
    with pytest.raises(BuildFailed, match=OPT_IN):
        build("compiler.kgen:fuse_reduction=off")
    monkeypatch.setenv(OPT_IN, "1")
    opened = backend.space(model).by_name["compiler.kgen:fuse_reduction"]
    assert opened.help.startswith("experimental")


def test_an_unparsable_network_is_reported_by_its_operator(backend, tmp_path):
    proto = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        network (float[4] x) => (float[4] y) { y = Det2(x) }
        """
    )
    path = tmp_path / "odd.onnx"
    onnx.save(proto, path)
    with pytest.raises(BuildFailed, match="Det2") as caught:
        backend.build(BuildRequest(path, Route(), tmp_path))
    assert "\n" not in str(caught.value)


def test_an_attention_in_fp32_builds_because_it_may_be_taken_apart(backend, tmp_path):
    proto = onnx.parser.parse_model(
        """
        <ir_version: 11, opset_import: ["" : 23]>
        network (float[1,2,16,8] q, float[1,2,16,8] k, float[1,2,16,8] v) => (float[1,2,16,8] y) {
            y = Attention(q, k, v)
        }
        """
    )
    path = tmp_path / "attention.onnx"
    onnx.save(proto, path)
    assert backend.build(BuildRequest(path, Route(), tmp_path)).bytes > 0
    with pytest.raises(BuildFailed, match="Attention"):
        backend.build(BuildRequest(path, Route.parse("builder.attention=dedicated"), tmp_path))


def test_the_space_follows_the_model(backend, network):
    space = backend.space(open_model(network))
    names = set(space.by_name)
    assert {
        "precision.policy",
        "precision.keep",
        "form.layernorm",
        "form.merge_projections",
        "builder.tf32",
    } <= names
    assert "runtime.cuda_graph" in names
    assert "holds no GroupNormalization" in space.left_out["form.groupnorm"]
    assert "byte for byte" in space.left_out["builder.optimization_level"]
    assert "fuse" not in space.by_name["pass.onnxscript"].values
    assert not any(name in space.left_out for name in names)


def test_without_numerics_precision_is_left_out(backend, network):
    space = backend.space(open_model(network), allow_numerics=False)
    assert not any(knob.changes_numerics for knob in space.knobs)
    assert "precision.policy" in space.left_out


def test_every_single_change_is_a_route_that_builds(build, backend, network):
    space = backend.space(open_model(network))
    failed = []
    for route in space.single_changes():
        try:
            build(str(route))
        except BuildFailed as error:
            failed.append(f"{route}: {error}")
    assert failed == []


def test_without_a_gpu_an_engine_does_not_load(build, backend, network):
    if gpu_facts().name:
        pytest.skip("there is a GPU")
    with pytest.raises((LoadFailed, MissingPackage)) as caught:
        backend.load(build(), Route(), network)
    assert "\n" not in str(caught.value)


def test_the_doctor_says_what_is_missing(backend):
    checks = {check.what: check for check in backend.checks()}
    assert checks["tensorrt_rtx_bindings"].ok
    assert all(check.ok or check.fix for check in checks.values())
    assert VARIABLE in checks["compiler knobs (experimental)"].detail


def test_export_ships_the_engine_and_says_how_it_was_built(build, backend, tmp_path):
    artifact = build("precision.policy=fp16")
    folder = tmp_path / "out"
    folder.mkdir()
    target = backend.export(artifact.path, Route.parse("precision.policy=fp16"), folder)
    assert target.read_bytes() == artifact.path.read_bytes()
    assert (folder / "model.onnx").exists()
    assert "--onnx=model.onnx" in (folder / "trtexec.txt").read_text()


@pytest.mark.skipif(bool(modelopt_missing()), reason=modelopt_missing() or "ModelOpt is here")
def test_an_fp8_network_builds(build):
    """Quantised by ModelOpt, with the rest in fp16, for a GPU that has FP8."""
    fp8 = build("precision.quantize=fp8 precision.policy=fp16")
    assert fp8.hash != build("precision.policy=fp16").hash
    proto = onnx.load(fp8.path.with_name("model.onnx"))
    assert onnx.TensorProto.FLOAT8E4M3FN in {tensor.data_type for tensor in proto.graph.initializer}


def test_what_rtx_cannot_build_is_not_offered(network):
    model = open_model(network)
    assert "fp8" not in TensorRtRtx("SM86").space(model).by_name["precision.quantize"].values
    assert "8.6" in TensorRtRtx("SM86").space(model).left_out["precision.quantize=fp8"]


def test_a_model_that_no_pass_changed_stands_beside_the_engine(build, backend, network, tmp_path):
    artifact = build("builder.tf32=off")
    assert artifact.path.with_name("model.onnx").read_bytes() == network.read_bytes()
    folder = tmp_path / "out"
    folder.mkdir()
    backend.export(artifact.path, Route.parse("builder.tf32=off"), folder)
    assert (folder / "model.onnx").read_bytes() == network.read_bytes()
    assert "the route has no passes" in (folder / "trtexec.txt").read_text()


def test_a_tune_without_a_gpu_says_so_in_one_line(network, tmp_path):
    if gpu_facts().name or not installed("nvidia-ml-py"):
        pytest.skip("there is a GPU, or nothing to look for one with")
    arguments = [
        "tune",
        str(network),
        "--backend",
        "tensorrt-rtx",
        "--builds",
        "1",
        "--output",
        str(tmp_path / "tuned"),
    ]
    shown = CliRunner().invoke(app, [*arguments, "--history", str(tmp_path / "history.db")])
    assert shown.exit_code == 2
    last = shown.stderr.splitlines()[-1]
    assert last.startswith("error: tensorrt-rtx cannot measure here: ")
    assert "GPU: none that NVML can see; engines can be built here, not run" in last
    assert not (tmp_path / "tuned" / "work").exists(), "nothing was built for nothing"
