from pathlib import Path

import numpy as np
import pytest

from routecast.datasets.errors import UsageError
from routecast.datasets.graph import Graph, Node, Tensor
from routecast.datasets.model import InputSpec, Model
from routecast.tuner.measure.inputs import generate_inputs, load_arrays, load_inputs, save_arrays

GRAPH = Graph(
    nodes=(
        Node("Cast", "", (0,), (3,)),
        Node("Gather", "", (2, 3), (4,), {"axis": 0}),
    ),
    tensors=(
        Tensor((2, 3), "int32"),
        Tensor((2,), "float32"),
        Tensor((7, 5), "float32", constant=True),
        Tensor((2, 3), "int64"),
        Tensor((2, 3, 5), "float32"),
    ),
    inputs=(0, 1),
    outputs=(4,),
    opset=17,
)
MODEL = Model(
    path=Path("m.onnx"),
    name="m",
    family="test",
    graph=GRAPH,
    inputs=(InputSpec("ids", (2, 3), "int32"), InputSpec("x", (2,), "float32")),
    outputs=("y",),
)


def test_generated_inputs_depend_on_the_seed_only_and_fit_the_tables():
    one, same, other = (generate_inputs(MODEL, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not np.array_equal(one["x"], other["x"])
    many = np.concatenate([generate_inputs(MODEL, seed)["ids"].ravel() for seed in range(50)])
    assert many.dtype == np.int32
    assert (many.min(), many.max()) == (0, 6)


def test_ranges_are_kept_and_checked():
    drawn = generate_inputs(MODEL, 0, {"x": (10.0, 11.0)})["x"]
    assert np.all((drawn >= 10) & (drawn < 11))
    with pytest.raises(UsageError, match="not an input; the inputs are ids, x"):
        generate_inputs(MODEL, 0, {"z": (0, 1)})
    with pytest.raises(UsageError, match="low < high"):
        generate_inputs(MODEL, 0, {"x": (1, 1)})


def test_npz_round_trip_with_awkward_names(tmp_path):
    arrays = {"file": np.arange(3), "a/b:0": np.float32(2.5).reshape(())}
    save_arrays(tmp_path / "a.npz", arrays)
    back = load_arrays(tmp_path / "a.npz")
    assert set(back) == set(arrays)
    assert back["a/b:0"].shape == ()


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"ids": np.zeros((2, 3), "i4")}, "no array for input x"),
        ({"ids": np.zeros((2, 4), "i4"), "x": np.zeros(2, "f4")}, r"must have shape \(2, 3\), got \(2, 4\)"),
        ({"ids": np.zeros((2, 3), "f4"), "x": np.zeros(2, "f4")}, "must be int32, got float32"),
    ],
)
def test_wrong_inputs_are_told(tmp_path, arrays, words):
    save_arrays(tmp_path / "in.npz", arrays)
    with pytest.raises(UsageError, match=words):
        load_inputs(tmp_path / "in.npz", MODEL)


def test_files_that_are_no_arrays_are_told(tmp_path):
    with pytest.raises(UsageError, match="no input file"):
        load_inputs(tmp_path / "absent.npz", MODEL)
    (tmp_path / "bad.npz").write_bytes(b"\x00garbage")
    with pytest.raises(UsageError, match="not a .npz or .npy file"):
        load_inputs(tmp_path / "bad.npz", MODEL)
    np.save(tmp_path / "pickled.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(UsageError, match="not a .npz or .npy file"):
        load_inputs(tmp_path / "pickled.npy", MODEL)
    np.save(tmp_path / "one.npy", np.zeros(2))
    with pytest.raises(UsageError, match="the model has 2 inputs"):
        load_inputs(tmp_path / "one.npy", MODEL)
