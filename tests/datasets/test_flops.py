"""Tests of operation and byte counts, against counts done by hand."""

from __future__ import annotations

import pytest

from routecast.datasets.flops import count_bytes, count_flops
from routecast.datasets.graph import Attribute, Tensor


def tensors(*shapes: tuple[int, ...] | None) -> list[Tensor | None]:
    return [None if shape is None else Tensor(shape, "float32") for shape in shapes]


@pytest.mark.parametrize(
    ("op", "attributes", "inputs", "outputs", "expected"),
    [
        ("Conv", {}, [(1, 3, 224, 224), (64, 3, 7, 7)], [(1, 64, 112, 112)], 2 * 64 * 112 * 112 * 3 * 49),
        ("Conv", {"group": 32}, [(1, 32, 10, 10), (32, 1, 3, 3)], [(1, 32, 10, 10)], 2 * 32 * 100 * 9),
        ("QLinearConv", {}, [(1, 3, 8, 8), (), (), (4, 3, 1, 1)], [(1, 4, 8, 8)], 2 * 4 * 64 * 3),
        ("ConvTranspose", {}, [(1, 8, 4, 4), (8, 2, 3, 3)], [(1, 2, 9, 9)], 2 * 8 * 16 * 2 * 9),
        ("MatMul", {}, [(4, 5, 6), (6, 7)], [(4, 5, 7)], 2 * 4 * 5 * 6 * 7),
        ("MatMul", {}, [(6,), (6,)], [()], 2 * 6),
        ("Gemm", {"transA": 1}, [(6, 5), (6, 7)], [(5, 7)], 2 * 5 * 6 * 7),
        ("com.microsoft::FusedMatMul", {}, [(2, 3), (3, 4)], [(2, 4)], 2 * 2 * 3 * 4),
        ("Einsum", {"equation": "bij,bjk->bik"}, [(2, 3, 4), (2, 4, 5)], [(2, 3, 5)], 2 * 2 * 3 * 4 * 5),
        ("Einsum", {"equation": "...i,ij->...j"}, [(2, 3, 4), (4, 5)], [(2, 3, 5)], 2 * 2 * 3 * 4 * 5),
        ("LSTM", {}, [(7, 2, 16), (1, 4 * 8, 16), (1, 4 * 8, 8)], [(7, 1, 2, 8)], 2 * 14 * 32 * (16 + 8)),
        ("GRU", {}, [(7, 2, 16), (2, 3 * 8, 16), (2, 3 * 8, 8)], [(7, 2, 2, 8)], 2 * 14 * 2 * 24 * (16 + 8)),
        ("Attention", {}, [(1, 8, 5, 64), (1, 8, 9, 64), (1, 8, 9, 64)], [(1, 8, 5, 64)], 4 * 8 * 5 * 9 * 64),
        ("Attention", {"q_num_heads": 8}, [(1, 10, 512), (1, 20, 512)], [(1, 10, 512)], 4 * 10 * 20 * 512),
        (
            "com.microsoft::Attention", {"num_heads": 4}, [(2, 10, 64), (64, 192)], [(2, 10, 64)],
            2 * 20 * 64 * 192 + 4 * 2 * 100 * 64,
        ),
        ("MaxPool", {"kernel_shape": [3, 3]}, [(1, 8, 9, 9)], [(1, 8, 3, 3)], 8 * 9 * 9),
        ("GlobalAveragePool", {}, [(1, 8, 9, 9)], [(1, 8, 1, 1)], 8 * 81),
        ("ReduceMean", {}, [(2, 3, 4)], [(2, 3)], 24),
        ("Add", {}, [(1, 4), (3, 1)], [(3, 4)], 12),
        ("Resize", {"mode": "linear"}, [(1, 1, 2, 2)], [(1, 1, 4, 4)], 7 * 16),
        ("Resize", {"mode": "nearest"}, [(1, 1, 2, 2)], [(1, 1, 4, 4)], 0),
        ("Transpose", {}, [(3, 4)], [(4, 3)], 0),
        ("Reshape", {}, [(3, 4), (1,)], [(12,)], 0),
        ("Cast", {}, [(3, 4)], [(3, 4)], 0),
    ],
)  # fmt: skip
def test_flops(
    op: str,
    attributes: dict[str, Attribute],
    inputs: list[tuple[int, ...]],
    outputs: list[tuple[int, ...]],
    expected: float,
) -> None:
    assert count_flops(op, attributes, tensors(*inputs), tensors(*outputs)) == expected


@pytest.mark.parametrize(
    "op", ["Conv", "MatMul", "Gemm", "Einsum", "LSTM", "Attention", "MaxPool", "DFT", "Add", "DeformConv"]
)
def test_unknown_shapes_count_nothing_and_break_nothing(op: str) -> None:
    unknown = [Tensor(None, ""), None, Tensor(None, "")]
    assert count_flops(op, {}, unknown, unknown[:1]) == 0
    assert count_bytes(op, unknown, unknown[:1]) == 0


def test_bytes() -> None:
    assert count_bytes("Add", tensors((2, 3), (3,)), tensors((2, 3))) == 4 * (6 + 3 + 6)
    assert count_bytes("Reshape", tensors((2, 3), (1,)), tensors((6,))) == 0
    table, found = Tensor((1000, 8), "float32"), Tensor((2, 8), "float32")
    assert count_bytes("Gather", [table, Tensor((2,), "int64")], [found]) == 2 * 4 * 16 + 16
