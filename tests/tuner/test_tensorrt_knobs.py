from __future__ import annotations

import json
import shlex

import onnx
import onnx.parser
import pytest

from routecast.datasets.graph import Graph, Node, Tensor
from routecast.datasets.route import Route
from routecast.tuner.backends.tensorrt.backend import TensorRt
from routecast.tuner.backends.tensorrt.export import trtexec_command, trtexec_text
from routecast.tuner.backends.tensorrt.knobs import (
    NEEDS,
    build_route,
    compiler_space,
    parse_listing,
    snapshot,
)
from routecast.tuner.patterns import GraphFacts

ATTENTION_ALONE = """
<ir_version: 11, opset_import: ["" : 23]>
network (float[1,2,16,8] q, float[1,2,16,8] k, float[1,2,16,8] v) => (float[1,2,16,8] y) { y = Attention(q, k, v) }
"""


def graph_of(*ops: str) -> Graph:
    """A chain of operators."""
    tensors = tuple(Tensor((1, 8), "float32") for _ in range(len(ops) + 1))
    nodes = tuple(Node(op, f"n{index}", (index,), (index + 1,)) for index, op in enumerate(ops))
    return Graph(nodes, tensors, (0,), (len(ops),), 17)


def test_the_snapshot_is_whole():
    listing = snapshot()
    assert listing.tuner_version == "2.19.45"
    assert len(listing.knobs) == len({knob.name for knob in listing.knobs}) == 209
    assert all(knob.default in knob.values and knob.help for knob in listing.knobs)
    assert {knob.needs for knob in listing.knobs} - {""} <= set(NEEDS)
    assert 20 <= sum(knob.numerics for knob in listing.knobs) <= 30


def test_attention_knobs_need_attention():
    without = compiler_space(GraphFacts(graph_of("Conv", "Relu")), snapshot())
    assert not any("mha_fusion" in knob.name for knob in without.knobs)
    assert "attention" in without.left_out["compiler.mha_fusion:v2"]
    assert "compiler.force_conv_nhwc" in without.by_name
    chain = compiler_space(GraphFacts(graph_of("MatMul", "Softmax", "MatMul")), snapshot())
    assert "compiler.mha_fusion:v2" in chain.by_name
    assert "compiler.force_conv_nhwc" in chain.left_out


def test_softmax_at_the_end_is_not_attention():
    space = compiler_space(GraphFacts(graph_of("MatMul", "Softmax")), snapshot())
    assert "no MatMul comes after" in space.left_out["compiler.mha_fusion:v2"]


def test_unsafe_knobs_are_never_offered():
    graph = graph_of("MatMul", "Softmax", "MatMul", "Gelu", "Slice")
    space = compiler_space(GraphFacts(graph), snapshot())
    unsafe = [knob.knob for knob in snapshot().knobs if knob.unsafe]
    assert unsafe
    assert not set(unsafe) & set(space.by_name)
    assert space.left_out["compiler.mha_fusion:v2:causal_mask"] == "it may build a wrong network"


def test_knobs_that_may_change_results_say_so():
    space = compiler_space(GraphFacts(graph_of("MatMul", "Div")), snapshot())
    assert space.by_name["compiler.rewrite_fp_div"].changes_numerics
    assert not space.by_name["compiler.kgen:vectorization"].changes_numerics


def listing_text(*options: tuple[str, str, str]) -> str:
    return json.dumps(
        {
            "tuner_version": "9.9",
            "tuner_options": [
                {"option": name, "allowed_values": allowed, "default_value": default, "help": "their words"}
                for name, allowed, default in options
            ],
        }
    )


def test_a_listing_is_read_in_all_its_forms():
    text = listing_text(
        ("-kgen:tiling", "-kgen:tiling=[0|1|2]", "2"),
        ("-kgen:reduction_algo", "-kgen:reduction_algo=int", "0"),
        ("-peep:max", "-peep:max=[1|2|...]", "0"),
        ("-new_mha_thing", "-new_mha_thing=[on|off]", "on"),
    )
    listing = parse_listing(text)
    knobs = {knob.name: knob for knob in listing.knobs}
    assert listing.tuner_version == "9.9"
    assert knobs["kgen:tiling"].values == ("2", "0", "1")
    assert knobs["kgen:reduction_algo"].values == ("0", "1", "2", "4")
    assert knobs["peep:max"].values == ("0", "1", "2", "8")
    assert knobs["new_mha_thing"].needs == "attention"
    assert knobs["new_mha_thing"].numerics, "nobody knows what an unknown knob does"


def test_a_default_that_changed_is_the_listings():
    (knob,) = parse_listing(listing_text(("-kgen:tiling", "-kgen:tiling=[0|1|2]", "1"))).knobs
    assert knob.default == "1"


def test_an_open_knob_that_nobody_knows_is_left_out():
    listing = parse_listing(listing_text(("-unheard_of", "-unheard_of=int", "3")))
    space = compiler_space(GraphFacts(graph_of("Relu")), listing)
    assert "nothing but its default" in space.left_out["compiler.unheard_of"]


@pytest.mark.parametrize("text", ["", "not json", "{}"])
def test_what_is_no_listing_is_refused(text):
    with pytest.raises((ValueError, KeyError)):
        parse_listing(text)


def test_routes_become_what_the_compiler_reads():
    route = Route.parse("compiler.kgen:tiling=1 precision.policy=fp16 compiler.concat_elim=off runtime.cuda_graph=off")
    assert build_route(route) == "-concat_elim=off -kgen:tiling=1"
    command = trtexec_command(route)
    assert "--setBuildRoute=-concat_elim=off -kgen:tiling=1" in command
    assert "--noCudaGraph" in command


def test_trtexec_takes_builder_options():
    route = Route.parse("builder.optimization_level=5 builder.tiling=fast builder.tf32=off builder.aux_streams=0")
    command = trtexec_command(route, "m.onnx", "m.engine")
    assert command[:3] == ["trtexec", "--onnx=m.onnx", "--saveEngine=m.engine"]
    assert {
        "--builderOptimizationLevel=5",
        "--tilingOptimizationLevel=1",
        "--noTF32",
        "--maxAuxStreams=0",
    } <= set(command)
    assert not any(part.startswith("--setBuildRoute") for part in command)


def test_a_tuning_file_begins_where_trtexec_ends():
    """trtexec reads the file as one expression and varies its last knob first."""
    backend = TensorRt()
    routes = [
        Route.parse(text)
        for text in (
            "compiler.kgen:tiling=1 precision.policy=fp16",
            "precision.policy=bf16",
            "compiler.concat_elim=off",
            "compiler.kgen:tiling=0",
            "compiler.kgen:tiling=1",
        )
    ]
    assert backend.tuner_file(routes, Route()) == "-concat_elim=[on|off]\n-kgen:tiling=[2|1|0]\n"
    pinned = Route.parse("compiler.concat_elim=off precision.policy=fp16")
    assert backend.tuner_file(routes, pinned) == "-concat_elim=off\n-kgen:tiling=[2|1|0]\n"
    assert backend.tuner_file([Route.parse("precision.policy=fp16")], Route()) == ""


def test_the_command_says_what_stands_in_the_model(tmp_path):
    model = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(ATTENTION_ALONE), model)
    route = Route.parse("form.gelu=raise precision.policy=fp16 compiler.a=off compiler.b:c=1 builder.tf32=off")
    *notes, command = trtexec_text(route, model).splitlines()
    assert notes[0] == "# model.onnx is the network after these passes: form.gelu=raise precision.policy=fp16"
    assert any("cannot let an Attention be taken apart" in note for note in notes)
    assert all(note.startswith("# ") for note in notes)
    words = ["trtexec", "--onnx=model.onnx", "--saveEngine=model.engine", "--setBuildRoute=-a=off -b:c=1", "--noTF32"]
    assert shlex.split(command) == words
    assert "the route has no passes" in trtexec_text(Route.parse("builder.attention=dedicated"), model)
    assert "taken apart" not in trtexec_text(Route.parse("builder.attention=dedicated"), model)
