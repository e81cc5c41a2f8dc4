"""Floating point operations and bytes moved by one execution of an operator, from the shapes around it.

A multiply-accumulate counts as 2 operations, an elementwise operator or a reduction as 1 per element, data
movement as 0. Formulas follow the definitions in ONNX's operator reference and in ONNX Runtime's
ContribOperators.md. Where a shape is unknown the count is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from routecast.datasets.graph import Attribute, Tensor

Attributes = Mapping[str, Attribute]
Tensors = Sequence[Tensor | None]
Shape = tuple[int, ...]

VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Size", "Optional"})
"""Operators that move no data: they look at it differently, or read only its shape."""

MOVES = frozenset({
    "Cast", "CastLike", "BitCast", "Concat", "Split", "SplitToSequence", "Slice", "Gather",
    "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND", "TensorScatter", "Transpose",
    "Expand", "Tile", "Pad", "Constant", "ConstantOfShape", "DepthToSpace", "SpaceToDepth",
    "ReverseSequence", "Compress", "OneHot", "Range", "EyeLike", "NonZero", "Trilu", "Unique", "Dropout",
    "If", "Loop", "Scan", "SequenceConstruct", "SequenceAt", "SequenceInsert", "SequenceErase",
    "SequenceEmpty", "SequenceLength", "ConcatFromSequence", "Im2Col", "Col2Im", "MemcpyFromHost",
    "MemcpyToHost", "ReorderInput", "ReorderOutput", "CenterCropPad", "RandomNormal", "RandomUniform",
    "RandomNormalLike", "RandomUniformLike", *VIEWS,
})  # fmt: skip
"""Operators that compute nothing."""

LOOKUPS = frozenset({"Slice", "Gather", "GatherElements", "GatherND", "Compress", "SequenceAt"})
"""Operators that read of their first input only what they return."""


def count_flops(op: str, attributes: Attributes, inputs: Tensors, outputs: Tensors) -> float:
    """Estimates the floating point operations of one execution.

    Args:
        op: operator type, with or without its domain.
        attributes: its attributes.
        inputs: what it reads, None where an optional input is absent.
        outputs: what it writes, None where an optional output is absent.
    """
    kind = op.rpartition("::")[2]
    formula = FORMULAS.get(kind)
    if formula is not None:
        return float(formula(attributes, inputs, outputs))
    if kind in MOVES:
        return 0.0
    return float(max(_elements(inputs), _elements(outputs)))


def count_bytes(op: str, inputs: Tensors, outputs: Tensors) -> float:
    """Bytes read and written by one execution: each tensor once, of a lookup's table only what is found."""
    kind = op.rpartition("::")[2]
    if kind in VIEWS:
        return 0.0
    written = sum(tensor.bytes for tensor in outputs if tensor)
    if kind in LOOKUPS:
        return float(2 * written + sum(tensor.bytes for tensor in inputs[1:] if tensor))
    return float(written + sum(tensor.bytes for tensor in inputs if tensor))


def _elements(tensors: Tensors) -> int:
    return max((tensor.elements for tensor in tensors if tensor), default=0)


def _shape(tensors: Tensors, index: int) -> Shape:
    """The shape of one tensor, empty when it is absent or unknown."""
    tensor = tensors[index] if index < len(tensors) else None
    return (tensor.shape or ()) if tensor else ()


def _size(tensors: Tensors, index: int) -> int:
    tensor = tensors[index] if index < len(tensors) else None
    return tensor.elements if tensor else 0


def _integer(attributes: Attributes, name: str, default: int) -> int:
    value = attributes.get(name, default)
    return int(value) if isinstance(value, int | float) else default


def _convolution(weight: int) -> Callable[[Attributes, Tensors, Tensors], float]:
    """2 · output elements · (C / groups) · kernel elements, the weight being (M, C / groups, kernel...)."""

    def formula(attributes: Attributes, inputs: Tensors, outputs: Tensors) -> float:
        return 2 * _size(outputs, 0) * math.prod(_shape(inputs, weight)[1:])

    return formula


def _transposed_convolution(attributes: Attributes, inputs: Tensors, outputs: Tensors) -> float:
    """2 · input elements · (M / groups) · kernel elements, the weight being (C, M / groups, kernel...)."""
    return 2 * _size(inputs, 0) * math.prod(_shape(inputs, 1)[1:])


def _deformable_convolution(attributes: Attributes, inputs: Tensors, outputs: Tensors) -> float:
    """A convolution, and 8 operations to interpolate each sampled value."""
    taps = _size(outputs, 0) // max(_shape(outputs, 0)[1] if len(_shape(outputs, 0)) > 1 else 1, 1)
    sampled = taps * (_shape(inputs, 0) or (0, 0))[1] * math.prod(_shape(inputs, 1)[2:])
    return _convolution(1)(attributes, inputs, outputs) + 8 * sampled


def _product(left: int = 0) -> Callable[[Attributes, Tensors, Tensors], float]:
    """2 · output elements · K, the last dimension of the left operand (the one before it when transposed)."""

    def formula(attributes: Attributes, inputs: Tensors, outputs: Tensors) -> float:
        shape = _shape(inputs, left)
        if not shape:
            return 0
        transposed = _integer(attributes, "transA", 0) and len(shape) > 1
        return 2 * _size(outputs, 0) * shape[-2 if transposed else -1]

    return formula


def _einsum(attributes: Attributes, inputs: Tensors, outputs: Tensors) -> float:
    """2 · the product of the sizes of all indices (1 · when there is one operand)."""
    equation = str(attributes.get("equation", "")).replace(" ", "")
    sizes: dict[str, int] = {}
    for term, index in zip(equation.partition("->")[0].split(","), range(len(inputs)), strict=False):
        shape = _shape(inputs, index)
        head, dots, tail = term.partition("...")
        if dots:
            sizes["..."] = max(sizes.get("...", 1), math.prod(shape[len(head) : len(shape) - len(tail)]))
        pairs = [*zip(head, shape, strict=False), *zip(reversed(tail), reversed(shape), strict=False)]
        for letter, size in pairs:
            sizes[letter] = max(sizes.get(letter, 1), size)
    return (2 if len(inputs) > 1 else 1) * math.prod(sizes.values()) if sizes else 0


def _recurrent(attributes: Attributes, inputs: Tensors, outputs: Tensors) -> float:
    """2 · steps · batch · (elements of W + elements of R): each weight acts once per step and entry."""
    steps = _shape(inputs, 0)[:2]
    return 2 * math.prod(steps) * (_size(inputs, 1) + _size(inputs, 2)) if len(steps) == 2 else 0


def _scores(query: Shape, key: Shape) -> float:
    """4 · batch · heads · query length · key length · head size: the scores, and their product with values.

    Shapes are (batch, heads, length, head size) or (batch, length, heads · head size).
    """
    if len(query) == 4 and len(key) == 4:
        batch, heads, length, size = query
        return 4 * batch * heads * length * key[2] * size
    if len(query) == 3 and len(key) in {3, 4}:
        return 4 * query[0] * query[1] * (key[2] if len(key) == 4 else key[1]) * query[2]
    return 0


def _attention(attributes: Attributes, inputs: Tensors, outputs: Tensors) -> float:
    """ONNX's Attention: query, key, value, and optionally the past key (input 4) in front of the keys."""
    query, key, past = _shape(inputs, 0), _shape(inputs, 1), _shape(inputs, 4)
    count = _scores(query, key)
    length = (key[2] if len(key) == 4 else key[1]) if len(key) in {3, 4} else 0
    return count * (1 + past[2] / length) if len(past) == 4 and length else count


def _packed_attention(attributes: Attributes, inputs: Tensors, outputs: Tensors) -> float:
    """com.microsoft's Attention: (batch, length, hidden) times weight (hidden, 3 · hidden), then attention.

    When the second input is not such a weight, it is ONNX's own operator.
    """
    source, weight = _shape(inputs, 0), _shape(inputs, 1)
    if len(source) != 3 or len(weight) != 2:
        return _attention(attributes, inputs, outputs)
    batch, length, hidden = source
    return 2 * batch * length * hidden * weight[1] + 4 * batch * length * length * (weight[1] // 3)


def _windowed(attributes: Attributes, inputs: Tensors, outputs: Tensors) -> float:
    """Output elements · kernel elements."""
    kernel = attributes.get("kernel_shape")
    return _size(outputs, 0) * (math.prod(int(size) for size in kernel) if isinstance(kernel, list) else 1)


def _fourier(attributes: Attributes, inputs: Tensors, outputs: Tensors) -> float:
    """5 · N · log2 N for the elements transformed, as is usual for a radix-2 FFT."""
    elements, shape = _size(outputs, 0) // 2, _shape(outputs, 0)
    length = max(shape[1:-1], default=1)
    return 5 * elements * math.log2(max(length, 2))


def _interpolation(attributes: Attributes, inputs: Tensors, outputs: Tensors) -> float:
    """Per output element 7 operations for linear interpolation in two dimensions, 31 for cubic, else none."""
    cost = {"linear": 7, "bilinear": 7, "cubic": 31, "bicubic": 31}.get(str(attributes.get("mode", "nearest")), 0)
    return cost * _size(outputs, 0)


Formula = Callable[[Attributes, Tensors, Tensors], float]

FORMULAS: Mapping[str, Formula] = {
    **dict.fromkeys(("Conv", "FusedConv", "ConvInteger", "NhwcFusedConv", "NhwcConv"), _convolution(1)),
    "QLinearConv": _convolution(3),
    **dict.fromkeys(("ConvTranspose", "ConvTransposeWithDynamicPads"), _transposed_convolution),
    "DeformConv": _deformable_convolution,
    **dict.fromkeys(
        (
            "MatMul", "Gemm", "FusedMatMul", "FusedGemm", "TransposeMatMul", "MatMulInteger",
            "MatMulIntegerToFloat", "DynamicQuantizeMatMul",
            "MatMulNBits", "MatMulBnb4", "QLinearMatMul", "QGemm", "GemmFloat8",
        ),
        _product(),
    ),
    "Einsum": _einsum,
    **dict.fromkeys(("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"), _recurrent),
    **dict.fromkeys(("Attention", "QAttention"), _packed_attention),
    **dict.fromkeys(("MultiHeadAttention", "GroupQueryAttention"), _attention),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool", "QLinearAveragePool"), _windowed),
    **dict.fromkeys(("DFT", "STFT", "Rfft", "Irfft"), _fourier),
    **dict.fromkeys(("Resize", "Upsample", "GridSample", "AffineGrid"), _interpolation),
}  # fmt: skip
