"""The networks made from torch modules: which builder, with which options, for which inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Input:
    """An input of fixed shape; integer inputs take ids in ``[low, high)`` of the range."""

    shape: tuple[int, ...]
    range: tuple[float, float] = (-1.0, 1.0)
    integer: bool = False


@dataclass(frozen=True)
class Spec:
    """One network to export.

    Attributes:
        name: the network's name.
        family: its architecture family.
        builder: ``module:Class`` in this package.
        options: keyword arguments of the class.
        inputs: the arguments of its ``forward``, in order.
        dynamo: export with the modern exporter; else with the TorchScript one, whose graphs look different.
        held_out: kept out of the shipped history.
    """

    name: str
    family: str
    builder: str
    options: Mapping[str, Any]
    inputs: Mapping[str, Input]
    dynamo: bool = True
    held_out: bool = False


def _image(batch: int, size: int) -> dict[str, Input]:
    return {"image": Input((batch, 3, size, size))}


def _signal(batch: int, channels: int, length: int) -> dict[str, Input]:
    return {"signal": Input((batch, channels, length))}


def _tokens(batch: int, length: int, vocabulary: int) -> dict[str, Input]:
    return {"tokens": Input((batch, length), (0, vocabulary), integer=True)}


def _bert(width: int, depth: int, batch: int, length: int, dynamo: bool = True) -> Spec:
    options = {"width": width, "depth": depth, "heads": width // 32, "length": length, "vocabulary": 2000}
    name = f"bert_w{width}_d{depth}_b{batch}_t{length}"
    return Spec(name, "bert", "transformer:Bert", options, _tokens(batch, length, 2000), dynamo)


def _gpt(width: int, depth: int, batch: int, length: int, dynamo: bool = True) -> Spec:
    options = {"width": width, "depth": depth, "heads": width // 64, "length": length, "vocabulary": 2000}
    name = f"gpt_w{width}_d{depth}_b{batch}_t{length}"
    return Spec(name, "gpt", "transformer:Gpt", options, _tokens(batch, length, 2000), dynamo)


def _clicks(batch: int, fields: int, rows: int) -> dict[str, Input]:
    return {"dense": Input((batch, 13)), "sparse": Input((batch, fields), (0, rows), integer=True)}


SPECS = (
    # Plain and residual convolutions
    Spec("vgg8_b1_s96", "vgg", "convolutional:Vgg", {"width": 48}, _image(1, 96), dynamo=False),
    Spec("vgg8_b4_s64", "vgg", "convolutional:Vgg", {"width": 24}, _image(4, 64)),
    Spec("resnet18_b1_s128", "resnet", "convolutional:ResNet", {"blocks": (2, 2, 2, 2)}, _image(1, 128)),
    Spec(
        "resnet26_b4_s64",
        "resnet",
        "convolutional:ResNet",
        {"blocks": (3, 3, 3, 3), "width": 32},
        _image(4, 64),
        dynamo=False,
    ),
    Spec(
        "resnet34_b1_s64",
        "resnet",
        "convolutional:ResNet",
        {"blocks": (3, 4, 6, 3), "width": 48},
        _image(1, 64),
    ),
    Spec("densenet_b1_s96", "densenet", "convolutional:DenseNet", {"growth": 16, "layers": 6}, _image(1, 96)),
    Spec(
        "densenet_b2_s64",
        "densenet",
        "convolutional:DenseNet",
        {"growth": 24, "layers": 8},
        _image(2, 64),
        dynamo=False,
    ),
    # Mobile convolutions
    Spec("mobilenet2_b1_s224", "mobilenet", "mobile:MobileNet", {"width": 24}, _image(1, 224)),
    Spec("mobilenet2_b8_s96", "mobilenet", "mobile:MobileNet", {"width": 24}, _image(8, 96), dynamo=False),
    Spec(
        "mobilenet3_b1_s192",
        "mobilenet",
        "mobile:MobileNet",
        {"width": 24, "squeeze": True, "activation": "Hardswish"},
        _image(1, 192),
        dynamo=False,
    ),
    Spec(
        "efficientnet_b1_s192",
        "efficientnet",
        "mobile:MobileNet",
        {"width": 24, "repeats": 3, "squeeze": True, "activation": "SiLU"},
        _image(1, 192),
    ),
    Spec(
        "efficientnet_b4_s96",
        "efficientnet",
        "mobile:MobileNet",
        {"width": 24, "squeeze": True, "activation": "SiLU"},
        _image(4, 96),
        dynamo=False,
    ),
    # Transformers
    _bert(128, 4, 1, 64),
    _bert(256, 4, 1, 128, dynamo=False),
    _bert(256, 6, 4, 32),
    _bert(384, 6, 1, 64, dynamo=False),
    _gpt(192, 4, 1, 64, dynamo=False),
    _gpt(256, 6, 1, 128),
    _gpt(384, 4, 2, 48),
    Spec(
        "vit_w192_b1_s112",
        "vit",
        "vit:Vit",
        {"width": 192, "depth": 6, "size": 112, "patch": 16},
        _image(1, 112),
    ),
    Spec(
        "vit_w128_b4_s64",
        "vit",
        "vit:Vit",
        {"width": 128, "depth": 8, "size": 64, "patch": 8},
        _image(4, 64),
        dynamo=False,
    ),
    Spec(
        "vit_w256_b1_s96",
        "vit",
        "vit:Vit",
        {"width": 256, "depth": 6, "size": 96, "patch": 16},
        _image(1, 96),
    ),
    Spec("swin_w48_b1_s96", "swin", "swin:Swin", {"width": 48, "depth": 4, "size": 96}, _image(1, 96)),
    Spec("swin_w64_b1_s128", "swin", "swin:Swin", {"width": 64, "depth": 4, "size": 128}, _image(1, 128)),
    Spec("mixer_w192_b1_s112", "mixer", "mixer:Mixer", {"width": 192, "depth": 6, "size": 112}, _image(1, 112)),
    Spec(
        "mixer_w128_b4_s96",
        "mixer",
        "mixer:Mixer",
        {"width": 128, "depth": 8, "size": 96},
        _image(4, 96),
        dynamo=False,
    ),
    # Modern and dense-prediction convolutions
    Spec("convnext_w48_b1_s160", "convnext", "convnext:ConvNext", {"width": 48}, _image(1, 160)),
    Spec("convnext_w48_b4_s96", "convnext", "convnext:ConvNext", {"width": 48}, _image(4, 96), dynamo=False),
    Spec("unet_w16_b1_s128", "unet", "unet:Unet", {"width": 16}, _image(1, 128)),
    Spec("unet_w24_b2_s64", "unet", "unet:Unet", {"width": 24, "bilinear": True}, _image(2, 64), dynamo=False),
    Spec("unet_w8_b1_s96", "unet", "unet:Unet", {"width": 8, "bilinear": True}, _image(1, 96)),
    Spec("autoencoder_w64_b1_s64", "autoencoder", "autoencoder:Autoencoder", {"width": 64}, _image(1, 64)),
    Spec(
        "autoencoder_w24_b8_s64",
        "autoencoder",
        "autoencoder:Autoencoder",
        {"width": 24},
        _image(8, 64),
        dynamo=False,
    ),
    Spec(
        "edsr_w32_b1_s64",
        "super_resolution",
        "super_resolution:Edsr",
        {"width": 32, "depth": 2},
        _image(1, 64),
    ),
    Spec(
        "edsr_w48_b1_s48",
        "super_resolution",
        "super_resolution:Edsr",
        {"width": 48, "depth": 8},
        _image(1, 48),
        dynamo=False,
    ),
    # Sequences and points
    Spec(
        "lstm_h256_b1_t96",
        "recurrent",
        "recurrent:Tagger",
        {"cell": "LSTM", "width": 256, "depth": 2, "vocabulary": 2000},
        _tokens(1, 96, 2000),
        dynamo=False,
    ),
    Spec(
        "lstm_h256_b4_t32",
        "recurrent",
        "recurrent:Tagger",
        {"cell": "LSTM", "width": 256, "depth": 1, "bidirectional": True, "vocabulary": 2000},
        _tokens(4, 32, 2000),
        dynamo=False,
    ),
    Spec(
        "gru_h320_b1_t128",
        "recurrent",
        "recurrent:Tagger",
        {"cell": "GRU", "width": 320, "depth": 2, "vocabulary": 2000},
        _tokens(1, 128, 2000),
        dynamo=False,
    ),
    Spec("wavenet_w48_b1_t2048", "wavenet", "temporal:Wavenet", {"width": 48, "depth": 10}, _signal(1, 1, 2048)),
    Spec(
        "wavenet_w64_b2_t512",
        "wavenet",
        "temporal:Wavenet",
        {"width": 64, "depth": 12},
        _signal(2, 1, 512),
        dynamo=False,
    ),
    Spec("tcn_w96_b1_t1024", "tcn", "temporal:Tcn", {"width": 96, "depth": 6}, _signal(1, 8, 1024)),
    Spec("tcn_w64_b8_t256", "tcn", "temporal:Tcn", {"width": 64, "depth": 5}, _signal(8, 8, 256), dynamo=False),
    Spec(
        "textcnn_b1_t512",
        "text_cnn",
        "text_cnn:TextCnn",
        {"width": 128, "filters": 96, "vocabulary": 2000},
        _tokens(1, 512, 2000),
    ),
    Spec(
        "textcnn_b8_t64",
        "text_cnn",
        "text_cnn:TextCnn",
        {"width": 128, "filters": 128, "vocabulary": 2000},
        _tokens(8, 64, 2000),
        dynamo=False,
    ),
    Spec("pointnet_b1_n1024", "pointnet", "pointnet:PointNet", {"width": 32}, _signal(1, 3, 1024)),
    Spec("pointnet_b4_n512", "pointnet", "pointnet:PointNet", {"width": 48}, _signal(4, 3, 512), dynamo=False),
    # Recommenders score many candidates at once: their batches are larger
    Spec(
        "dlrm_b512",
        "recommender",
        "recommender:Dlrm",
        {"fields": 12, "rows": 2000, "width": 32},
        _clicks(512, 12, 2000),
    ),
    Spec(
        "dlrm_b256",
        "recommender",
        "recommender:Dlrm",
        {"fields": 26, "rows": 1000, "width": 64},
        _clicks(256, 26, 1000),
        dynamo=False,
    ),
    Spec(
        "deepfm_b256",
        "recommender",
        "recommender:DeepFm",
        {"fields": 20, "rows": 2000, "width": 16},
        _clicks(256, 20, 2000),
    ),
    # Held out
    Spec("hrnet_w32_b1_s160", "hrnet", "hrnet:HrNet", {"width": 32, "stages": 3}, _image(1, 160), held_out=True),
    Spec(
        "hrnet_w24_b4_s96",
        "hrnet",
        "hrnet:HrNet",
        {"width": 24, "stages": 2},
        _image(4, 96),
        dynamo=False,
        held_out=True,
    ),
    Spec(
        "conformer_w144_b1_t100",
        "conformer",
        "conformer:Conformer",
        {"width": 144, "depth": 6, "bands": 80},
        _signal(1, 80, 200),
        held_out=True,
    ),
    Spec(
        "conformer_w96_b2_t64",
        "conformer",
        "conformer:Conformer",
        {"width": 96, "depth": 8, "bands": 40},
        _signal(2, 40, 128),
        dynamo=False,
        held_out=True,
    ),
)
