"""The single optimisers of ONNX Runtime that a route may switch off, and the graphs on which each can act.

Names and patterns were read off ONNX Runtime 1.32: its verbose log names each optimiser that runs, and saving
the optimised model shows what each does. Names that a version does not know are ignored, so a knob may list
several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from routecast.datasets.route import Knob
from routecast.tuner.patterns import GraphFacts

_LEVEL = "session.graph_optimization_level"
_UP_TO_BASIC = ("all", "layout", "extended", "basic")
_UP_TO_EXTENDED = ("all", "layout", "extended")
_LAYOUT = ("all", "layout")
_STATIC = {"precision.policy": ("static_int8",)}
_DYNAMIC = {"precision.policy": ("dynamic_int8",)}
_NO_GEMM = {"optimizer.MatMulAddFusion": ("off",)}

_ACTIVATIONS = ("Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "HardSigmoid")


@dataclass(frozen=True)
class Optimizer:
    """One optimiser, or several that do the same at different levels.

    Attributes:
        name: last part of the knob's name.
        names: what ONNX Runtime calls it, in all versions.
        levels: graph optimisation levels at which it runs.
        applies: whether it can act on a graph.
        needs: what the graph must hold, for people.
        help: what it does.
        requires: other knobs that it needs.
    """

    name: str
    names: tuple[str, ...]
    levels: tuple[str, ...]
    applies: Callable[[GraphFacts], bool]
    needs: str
    help: str
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def knob_name(self) -> str:
        """Full name of its knob."""
        return f"optimizer.{self.name}"

    def knob(self, levels: tuple[str, ...]) -> Knob:
        """Its knob, where ``levels`` are the graph optimisation levels that the route space offers."""
        at = tuple(level for level in self.levels if level in levels)
        return Knob(
            self.knob_name,
            ("on", "off"),
            "on",
            help=f"ONNX Runtime's optimiser that {self.help}",
            requires={_LEVEL: at, **self.requires},
        )


def _foldable_batch_norm(facts: GraphFacts) -> bool:
    return facts.follows("Conv", "BatchNormalization")


def _normalizes(facts: GraphFacts) -> bool:
    return facts.has("LayerNormalization") or (facts.follows("ReduceMean", "Sub") and facts.has("Sqrt"))


def _unfused_normalization(facts: GraphFacts) -> bool:
    return facts.follows("ReduceMean", "Sub") and facts.has("Sqrt") and facts.has("Pow", "Mul")


OPTIMIZERS: tuple[Optimizer, ...] = (
    Optimizer(
        "ConvBNFusion", ("ConvBNFusion",), _UP_TO_BASIC, _foldable_batch_norm,
        "a BatchNormalization after a Conv", "folds BatchNormalization into the Conv before it",
    ),
    Optimizer(
        "ConvAddFusion", ("ConvAddFusion",), _UP_TO_BASIC, lambda facts: facts.follows("Conv", "Add"),
        "an Add after a Conv", "folds an added constant into the bias of a Conv",
    ),
    Optimizer(
        "ConvMulFusion", ("ConvMulFusion",), _UP_TO_BASIC, lambda facts: facts.follows("Conv", "Mul"),
        "a Mul after a Conv", "folds a constant factor into the weights of a Conv",
    ),
    Optimizer(
        "PadFusion", ("Pad_Fusion", "PadFusion"), _UP_TO_BASIC,
        lambda facts: facts.follows("Pad", ("Conv", "MaxPool", "AveragePool")),
        "a Pad before a Conv or a pooling", "folds a Pad into the Conv or pooling after it",
    ),
    Optimizer(
        "MatMulAddFusion", ("MatMulAddFusion",), _UP_TO_BASIC, lambda facts: facts.follows("MatMul", "Add"),
        "an Add after a MatMul", "turns MatMul and Add into Gemm",
    ),
    Optimizer(
        "MatMulBNFusion", ("MatMul_BatchNormalization_Fusion",), _UP_TO_BASIC,
        lambda facts: facts.follows(("MatMul", "Gemm"), "BatchNormalization", hops=3),
        "a BatchNormalization after a MatMul", "folds BatchNormalization into the MatMul before it",
    ),
    Optimizer(
        "GemmTransposeFusion", ("GemmTransposeFusion",), _UP_TO_BASIC,
        lambda facts: facts.follows("Transpose", "Gemm") or facts.follows("Gemm", "Transpose"),
        "a Transpose beside a Gemm", "folds a Transpose into the Gemm beside it",
    ),
    Optimizer(
        "ConstantFolding", ("ConstantFolding",), _UP_TO_BASIC, lambda facts: facts.foldable,
        "an operator of constants alone",
        "computes operators of constants once, when the model is loaded",
    ),
    Optimizer(
        "CommonSubexpressionElimination", ("CommonSubexpressionElimination",), _UP_TO_BASIC,
        lambda facts: facts.duplicates,
        "two operators alike", "computes equal operators once",
    ),
    Optimizer(
        "ReshapeFusion", ("ReshapeFusion",), _UP_TO_BASIC,
        lambda facts: facts.has("Reshape")
        and (facts.has("Shape", "Concat") or facts.follows("MatMul", "Add")),
        "a Reshape whose shape is computed or that meets another",
        "merges Reshapes and the operators of their shapes",
    ),
    Optimizer(
        "TransposeOptimizer", ("TransposeOptimizer", "TransposeOptimizer_CPUExecutionProvider"), _UP_TO_BASIC,
        lambda facts: facts.has("Transpose"),
        "a Transpose", "moves Transposes until they cancel",
    ),
    Optimizer(
        "GatherSliceToSplitFusion", ("GatherSliceToSplitFusion",), _UP_TO_EXTENDED,
        lambda facts: facts.siblings["Gather"] > 1 or facts.siblings["Slice"] > 1,
        "several Gathers or Slices of one tensor", "turns Gathers or Slices of one tensor into one Split",
    ),
    Optimizer(
        "SliceConcatToSpaceToDepthFusion", ("SliceConcatToSpaceToDepthFusion",), _UP_TO_BASIC,
        lambda facts: facts.siblings["Slice"] > 1 and facts.follows("Slice", "Concat", hops=2),
        "a Concat of Slices of one tensor", "turns a Concat of strided Slices into SpaceToDepth",
    ),
    Optimizer(
        "NotWhereFusion", ("NotWhereFusion",), _UP_TO_BASIC, lambda facts: facts.follows("Not", "Where"),
        "a Where after a Not", "swaps the branches of a Where instead of negating its condition",
    ),
    Optimizer(
        "LayerNormFusion", ("LayerNormFusion", "LayerNormFusionL1", "LayerNormFusionL2"), _UP_TO_EXTENDED,
        _unfused_normalization,
        "the steps of a layer normalisation", "merges the steps of a layer normalisation into one operator",
    ),
    Optimizer(
        "SimplifiedLayerNormFusion", ("SimplifiedLayerNormFusion",), _UP_TO_EXTENDED,
        lambda facts: facts.follows("Pow", "ReduceMean") and facts.has("Sqrt"),
        "the steps of a root-mean-square normalisation",
        "merges the steps of a root-mean-square normalisation into one operator",
    ),
    Optimizer(
        "SkipLayerNormFusion", ("SkipLayerNormFusion",), _UP_TO_EXTENDED,
        lambda facts: facts.has("Add") and _normalizes(facts),
        "a layer normalisation and an Add", "merges a residual Add into the layer normalisation after it",
    ),
    Optimizer(
        "BiasSkipLayerNormFusion", ("BiasSkipLayerNormFusion",), _UP_TO_EXTENDED,
        lambda facts: facts.follows("MatMul", "Add") and _normalizes(facts),
        "a layer normalisation and an Add after a MatMul",
        "merges the bias of a MatMul into the layer normalisation after it", _NO_GEMM,
    ),
    Optimizer(
        "AttentionFusion", ("AttentionFusion",), _UP_TO_EXTENDED,
        lambda facts: facts.follows("Softmax", "MatMul")
        and facts.follows("MatMul", "Add")
        and _normalizes(facts),
        "attention between layer normalisations",
        "merges the steps of attention into one operator", _NO_GEMM,
    ),
    Optimizer(
        "GeluFusion", ("GeluFusion", "GeluFusionL1", "GeluFusionL2"), _UP_TO_EXTENDED,
        lambda facts: facts.has("Erf"),
        "Erf", "merges the steps of a Gelu into one operator",
    ),
    Optimizer(
        "BiasGeluFusion", ("BiasGeluFusion",), _UP_TO_EXTENDED,
        lambda facts: facts.has("Erf", "Gelu") and facts.follows("MatMul", "Add"),
        "a Gelu and an Add after a MatMul",
        "merges the bias of a MatMul into the Gelu after it", _NO_GEMM,
    ),
    Optimizer(
        "FastGeluFusion", ("FastGeluFusion",), _UP_TO_EXTENDED,
        lambda facts: facts.follows("Tanh", "Add"),
        "an Add after a Tanh", "merges the steps of the tanh form of Gelu into one operator",
    ),
    Optimizer(
        "QuickGeluFusion", ("QuickGeluFusion",), _UP_TO_EXTENDED,
        lambda facts: facts.follows("Sigmoid", "Mul"),
        "a Mul after a Sigmoid", "merges Sigmoid and Mul into one operator",
    ),
    Optimizer(
        "MatMulScaleFusion", ("MatMulScaleFusion",), _UP_TO_EXTENDED,
        lambda facts: facts.follows("MatMul", ("Mul", "Div"))
        or facts.follows(("Mul", "Div"), "MatMul"),
        "a Mul or Div beside a MatMul", "merges a constant factor into the MatMul beside it",
    ),
    Optimizer(
        "MatmulTransposeFusion", ("MatmulTransposeFusion",), _UP_TO_EXTENDED,
        lambda facts: facts.follows("Transpose", "MatMul"),
        "a Transpose before a MatMul", "merges a Transpose into the MatMul after it",
    ),
    Optimizer(
        "GemmActivationFusion", ("GemmActivationFusion",), _UP_TO_EXTENDED,
        lambda facts: facts.follows("Gemm", _ACTIVATIONS)
        or (facts.follows("MatMul", "Add") and facts.follows("Add", _ACTIVATIONS)),
        "an activation after a Gemm", "merges an activation into the Gemm before it",
    ),
    Optimizer(
        "ConvActivationFusion", ("ConvActivationFusion",), _UP_TO_EXTENDED,
        lambda facts: facts.follows("Conv", _ACTIVATIONS, hops=2),
        "an activation after a Conv", "merges an activation into the Conv before it",
    ),
    Optimizer(
        "ConvAddActivationFusion", ("ConvAddActivationFusion",), _LAYOUT,
        lambda facts: facts.follows("Conv", "Add", hops=2) and facts.follows("Add", _ACTIVATIONS),
        "an activation after the sum of a Conv and a branch",
        "merges the sum of a Conv and a branch, and the activation after it",
    ),
    Optimizer(
        "NchwcTransformer", ("NchwcTransformer",), _LAYOUT, lambda facts: facts.has("Conv"),
        "Conv", "runs Convs in a layout blocked by channels",
    ),
    Optimizer(
        "NhwcTransformer", ("NhwcTransformer",), _LAYOUT, lambda facts: facts.has("Conv"),
        "Conv", "runs quantised Convs in channels-last layout", _STATIC,
    ),
    Optimizer(
        "QDQSelectorActionTransformer", ("QDQSelectorActionTransformer",), _UP_TO_EXTENDED,
        lambda facts: True, "",
        "merges operators between quantise and dequantise into integer operators", _STATIC,
    ),
    Optimizer(
        "QDQPropagationTransformer", ("QDQPropagationTransformer",), _UP_TO_BASIC,
        lambda facts: True, "", "moves quantise and dequantise over operators that only move data", _STATIC,
    ),
    Optimizer(
        "QDQFinalCleanupTransformer", ("QDQFinalCleanupTransformer",), _UP_TO_EXTENDED,
        lambda facts: True, "", "removes quantise and dequantise pairs that are left over", _STATIC,
    ),
    Optimizer(
        "QDQS8ToU8Transformer", ("QDQS8ToU8Transformer",), _UP_TO_EXTENDED, lambda facts: True, "",
        "turns signed into unsigned activations", {**_STATIC, "precision.activation_type": ("int8",)},
    ),
    Optimizer(
        "QuantizedReluFusion", ("ReluQuantRewrite", "ClipQuantRewrite"), _UP_TO_BASIC,
        lambda facts: facts.has("Relu", "Clip"),
        "Relu or Clip", "drops a Relu or Clip that the quantisation after it repeats", _STATIC,
    ),
    Optimizer(
        "DynamicQuantizeMatMulFusion", ("DynamicQuantizeMatMulFusion",), _UP_TO_EXTENDED,
        lambda facts: bool(facts.weighted("MatMul", "Gemm")),
        "a MatMul with weights", "merges the steps of a dynamically quantised MatMul", _DYNAMIC,
    ),
    Optimizer(
        "MatMulIntegerToFloatFusion", ("MatMulIntegerToFloatFusion",), _UP_TO_EXTENDED,
        lambda facts: bool(facts.weighted("MatMul", "Gemm")),
        "a MatMul with weights", "merges an integer MatMul and the scaling of its result", _DYNAMIC,
    ),
)  # fmt: skip

DISABLED_NAMES: Mapping[str, tuple[str, ...]] = {item.knob_name: item.names for item in OPTIMIZERS}
"""ONNX Runtime's names of the optimisers that a knob switches off, by the knob's name."""
