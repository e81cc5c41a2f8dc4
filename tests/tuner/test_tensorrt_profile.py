from __future__ import annotations

import json

from routecast.tuner.backends.tensorrt.profile import LayerNames, median_times

LAYERS = {
    "Layers": [
        {"Name": "__myl_Move_myl0_0", "LayerType": "kgen", "Metadata": ""},
        {
            "Name": "conv_myl0_1",
            "LayerType": "correlation",
            "Metadata": "[ONNX Layer: stem/conv]\u001e[ONNX Layer: stem/relu]",
        },
        "a name alone",
    ]
}
NODES = {"stem/conv": 0, "stem/relu": 1}


def test_layers_are_traced_to_operators():
    names = LayerNames.parse(json.dumps(LAYERS), NODES)
    layer = names.local("conv_myl0_1", 0.5)
    assert (layer.op, layer.node, layer.ms) == ("correlation", 1, 0.5)
    assert names.local("__myl_Move_myl0_0", 0.1).op == "Move"
    assert names.local("__myl_Move_myl0_0", 0.1).node == -1
    assert names.local("unheard of", 0.1).op == "layer"


def test_an_inspector_without_detail_is_no_error():
    assert LayerNames.parse('{"Layers": ["a", "b"]}', NODES).kinds == {}
    assert LayerNames.parse("", NODES).kinds == {}


def test_times_are_medians_by_position():
    names = LayerNames({}, {})
    runs = [[("a", 1.0), ("b", 5.0)], [("a", 3.0), ("b", 6.0)], [("a", 2.0), ("b", 100.0)]]
    times = median_times(runs, names)
    assert [(layer.name, layer.ms) for layer in times] == [("a", 2.0), ("b", 6.0)]
    assert median_times([], names) == []
