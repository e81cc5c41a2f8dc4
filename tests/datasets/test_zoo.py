"""Tests of the zoo: what it lists, and that what it makes runs with outputs worth comparing."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from routecast.datasets.errors import UsageError
from routecast.datasets.zoo import Network, network, networks

_INTEGERS = {"tensor(int32)": np.int32, "tensor(int64)": np.int64}
# One of each source, small and quick to make.
_QUICK = ("onnx_squeezenet", "onnx_shufflenet", "ocr_orientation_b1", "lstm_h256_b1_t96", "dlrm_b512")


def _feeds(each: Network, session: onnxruntime.InferenceSession, seed: int) -> dict[str, NDArray[np.generic]]:
    """Draws a value for every input, as the network's shapes and ranges say."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, NDArray[np.generic]] = {}
    for given in session.get_inputs():
        shape = each.shapes.get(given.name, given.shape)
        low, high = each.ranges[given.name]
        if given.type in _INTEGERS:
            feeds[given.name] = rng.integers(int(low), int(high), shape, dtype=_INTEGERS[given.type])
        else:
            feeds[given.name] = rng.uniform(low, high, shape).astype(np.float32)
    return feeds


def _check(each: Network, folder: Path) -> None:
    """Makes the network, runs it twice on different inputs and judges the outputs."""
    path = each.make(folder)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert set(each.ranges) == {given.name for given in session.get_inputs()}
    first, second = (session.run(None, _feeds(each, session, seed)) for seed in (0, 1))
    for output in first:
        assert np.isfinite(output).all()
    answer = first[0].astype(np.float64)
    assert answer.std() > 1e-3 * abs(answer).mean()
    assert answer.std() > 1e-5
    assert not np.allclose(answer, second[0], rtol=1e-3, atol=1e-7)


def _available(name: str) -> Network:
    """Returns a network, or skips the test where the package that carries it is absent."""
    try:
        return network(name)
    except UsageError as absent:
        pytest.skip(str(absent))


def test_names_are_unique() -> None:
    names = [each.name for each in networks()]
    assert len(set(names)) == len(names)


def test_there_are_enough_networks_without_optional_wheels() -> None:
    kept = [each for each in networks() if not each.held_out and each.source != "wheel"]
    held_out = [each for each in networks() if each.held_out and each.source != "wheel"]
    assert len(kept) >= 42
    assert len({each.family for each in kept}) >= 16
    assert len({each.family for each in held_out}) >= 2


def test_families_are_held_out_whole() -> None:
    held_out = {each.family for each in networks() if each.held_out}
    assert not held_out & {each.family for each in networks() if not each.held_out}


def test_listing_loads_neither_torch_nor_onnx() -> None:
    program = (
        "import sys; from routecast.datasets.zoo import networks; assert networks();"
        "print(sorted({'torch', 'onnx', 'onnxruntime', 'rapidocr_onnxruntime', 'magika'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unknown_name_offers_near_ones() -> None:
    with pytest.raises(UsageError, match="did you mean resnet18_b1_s128"):
        network("resnet18_b1_s12")
    with pytest.raises(UsageError, match=r"networks\(\) lists"):
        network("?")


@pytest.mark.parametrize("name", _QUICK)
def test_makes_a_network_that_runs(name: str, tmp_path: Path) -> None:
    _check(_available(name), tmp_path)


def test_package_networks_have_constant_weights_and_nothing_left_to_fold(tmp_path: Path) -> None:
    graph = onnx.load(_available("onnx_shufflenet").make(tmp_path)).graph
    initializers = {each.name for each in graph.initializer}
    assert not initializers & {each.name for each in graph.input}
    assert all(set(node.input) - initializers for node in graph.node)


@pytest.mark.parametrize("name", ["onnx_shufflenet", "lstm_h256_b1_t96", "edsr_w32_b1_s64"])
def test_makes_the_same_file_every_time(name: str, tmp_path: Path) -> None:
    digests = set()
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        digests.add(hashlib.sha256(_available(name).make(folder).read_bytes()).hexdigest())
    assert len(digests) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", [each.name for each in networks()])
def test_every_network_is_finite_and_not_constant(name: str, tmp_path: Path) -> None:
    each = network(name)
    _check(each, tmp_path)
    # pytest keeps the folders of several runs, and the largest networks have hundreds of megabytes.
    (tmp_path / f"{name}.onnx").unlink()
