from __future__ import annotations

import re
from collections import Counter

import onnx
import onnxruntime as ort
import pytest

from routecast.tuner.backends.onnxruntime.optimizers import DISABLED_NAMES, OPTIMIZERS

# Rewrite rules run inside a rule-based transformer, so the log does not name them.
RULES = {
    "ConvBNFusion", "ConvAddFusion", "ConvMulFusion", "PadFusion", "MatMulBNFusion", "GemmTransposeFusion",
    "NotWhereFusion", "QuantizedReluFusion",
}  # fmt: skip


def optimized(path, folder, disabled=()):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=list(disabled))
    return Counter(node.op_type for node in onnx.load(folder / "optimized.onnx").graph.node)


@pytest.mark.parametrize("network", ["conv_network", "attention_network"])
def test_names_are_those_onnxruntime_logs(network, request, capfd):
    options = ort.SessionOptions()
    options.log_severity_level, options.log_verbosity_level = 0, 1
    path = str(request.getfixturevalue(network).static)
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    ran = set(re.findall(r"GraphTransformer (\w+) modified", capfd.readouterr().err))
    assert ran
    unknown = {
        item.name for item in OPTIMIZERS if item.name not in RULES and ran.isdisjoint(DISABLED_NAMES[item.knob_name])
    }
    assert not unknown


@pytest.mark.parametrize(
    ("network", "name"),
    [
        ("conv_network", "ConvBNFusion"),
        ("conv_network", "NchwcTransformer"),
        ("attention_network", "MatMulAddFusion"),
        ("attention_network", "GeluFusion"),
        ("attention_network", "SkipLayerNormFusion"),
        ("attention_network", "MatMulScaleFusion"),
        ("attention_network", "MatmulTransposeFusion"),
    ],
)
def test_switching_off_changes_the_optimized_graph(network, name, request, tmp_path):
    path = request.getfixturevalue(network).static
    assert optimized(path, tmp_path) != optimized(path, tmp_path, DISABLED_NAMES[f"optimizer.{name}"])
