"""Networks to measure on a GPU: timm, torchvision and transformers models, larger zoo modules, trained ones of wheels.

Nothing is downloaded: but for those that a wheel ships, every network is made from its configuration, with seeded
weights.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
import zlib
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from routecast.datasets.zoo import Network, wheels
from routecast.datasets.zoo.torch_modules.catalogue import Input, Spec

# name in timm, family, batch, image size, exporter (opset; dynamo from 18 on), held out
_TIMM = (
    ("resnet50", "resnet", 1, 224, 17, False),
    ("resnet50", "resnet", 8, 224, 18, False),
    ("resnet18", "resnet", 32, 224, 17, False),
    ("resnext50_32x4d", "resnet", 4, 224, 18, False),
    ("vit_small_patch16_224", "vit", 8, 224, 17, False),
    ("vit_tiny_patch16_224", "vit", 1, 224, 18, False),
    ("vit_base_patch16_224", "vit", 4, 224, 20, False),
    ("deit3_small_patch16_224", "vit", 16, 224, 14, False),
    ("swin_tiny_patch4_window7_224", "swin", 4, 224, 17, False),
    ("swin_tiny_patch4_window7_224", "swin", 16, 224, 18, False),
    ("convnext_tiny", "convnext", 4, 224, 18, False),
    ("convnext_atto", "convnext", 16, 224, 17, False),
    ("convnextv2_nano", "convnext", 8, 224, 17, False),
    ("efficientnet_b0", "efficientnet", 8, 224, 18, False),
    ("efficientnet_b0", "efficientnet", 1, 224, 17, False),
    ("tf_efficientnetv2_b0", "efficientnet", 16, 224, 17, False),
    ("mobilenetv3_large_100", "mobilenet", 16, 224, 17, False),
    ("mobilenetv3_small_100", "mobilenet", 1, 224, 18, False),
    ("mobilenetv2_100", "mobilenet", 32, 224, 17, False),
    ("mixer_s16_224", "mixer", 8, 224, 17, False),
    ("gmlp_s16_224", "mixer", 4, 224, 18, False),
    ("regnety_008", "regnet", 8, 224, 17, False),
    ("regnetx_016", "regnet", 16, 224, 18, False),
    ("densenet121", "densenet", 4, 224, 17, False),
    ("inception_v3", "inception", 2, 299, 17, False),
    ("mobilevit_s", "mobilevit", 4, 256, 17, False),
    ("mobilevitv2_100", "mobilevit", 8, 256, 18, False),
    ("poolformer_s12", "poolformer", 8, 224, 17, False),
    ("pvt_v2_b1", "pvt", 4, 224, 17, False),
    ("levit_128", "levit", 32, 224, 17, True),
    ("cait_xxs24_224", "cait", 2, 224, 17, False),
    ("repvgg_a0", "repvgg", 8, 224, 17, False),
    ("ghostnet_100", "ghostnet", 8, 224, 17, True),
    ("hrnet_w18_small", "hrnet", 4, 224, 17, True),
    ("coatnet_nano_rw_224", "coatnet", 4, 224, 17, True),
    ("edgenext_small", "edgenext", 8, 256, 17, True),
    ("levit_128", "levit", 4, 224, 17, True),
    ("pit_s_224", "pit", 8, 224, 18, True),
    ("nextvit_small", "nextvit", 8, 224, 18, True),
    ("coatnet_nano_rw_224", "coatnet", 4, 224, 18, True),
    ("ghostnet_100", "ghostnet", 32, 224, 17, True),
    ("coatnet_nano_rw_224", "coatnet", 16, 224, 17, True),
    ("resnet34", "resnet", 1, 224, 18, False),
    ("resnet101", "resnet", 4, 224, 17, False),
    ("seresnet50", "resnet", 8, 224, 17, False),
    ("wide_resnet50_2", "resnet", 2, 224, 18, False),
    ("res2net50_26w_4s", "resnet", 4, 224, 17, False),
    ("resnest26d", "resnet", 4, 224, 17, False),
    ("vit_small_patch32_224", "vit", 16, 224, 18, False),
    ("vit_base_patch32_224", "vit", 8, 224, 17, False),
    ("deit_tiny_patch16_224", "vit", 32, 224, 17, False),
    ("vit_tiny_patch16_384", "vit", 2, 384, 17, False),
    ("beit_base_patch16_224", "vit", 2, 224, 17, False),
    ("eva02_tiny_patch14_224", "vit", 8, 224, 18, False),
    ("swin_small_patch4_window7_224", "swin", 1, 224, 17, False),
    ("swinv2_tiny_window8_256", "swin", 4, 256, 17, False),
    ("convnext_pico", "convnext", 1, 224, 18, False),
    ("convnext_small", "convnext", 8, 224, 17, False),
    ("convnextv2_atto", "convnext", 32, 224, 18, False),
    ("efficientnet_b1", "efficientnet", 4, 240, 17, False),
    ("efficientnet_lite0", "efficientnet", 32, 224, 18, False),
    ("tf_efficientnetv2_s", "efficientnet", 2, 224, 17, False),
    ("mobilenetv3_large_100", "mobilenet", 1, 224, 18, False),
    ("mobilenetv4_conv_small", "mobilenet", 8, 224, 17, False),
    ("mobilenetv4_conv_medium", "mobilenet", 4, 256, 18, False),
    ("tinynet_a", "mobilenet", 8, 192, 17, False),
    ("mnasnet_small", "mobilenet", 16, 224, 17, False),
    ("lcnet_100", "mobilenet", 4, 224, 18, False),
    ("mixer_b16_224", "mixer", 2, 224, 17, False),
    ("resmlp_12_224", "mixer", 16, 224, 18, False),
    ("regnety_004", "regnet", 1, 224, 18, False),
    ("regnetx_032", "regnet", 4, 224, 17, False),
    ("nf_regnet_b0", "regnet", 8, 192, 17, False),
    ("densenet169", "densenet", 1, 224, 18, False),
    ("inception_v4", "inception", 1, 299, 17, False),
    ("xception41", "inception", 2, 299, 17, False),
    ("mobilevit_xs", "mobilevit", 1, 256, 18, False),
    ("mobilevitv2_050", "mobilevit", 16, 256, 17, False),
    ("poolformer_s24", "poolformer", 2, 224, 18, False),
    ("pvt_v2_b0", "pvt", 16, 224, 18, False),
    ("cait_xxs24_224", "cait", 8, 224, 18, False),
    ("repvgg_b0", "repvgg", 2, 224, 18, False),
    ("repvgg_a1", "repvgg", 16, 224, 17, False),
    ("mobileone_s0", "mobileone", 8, 224, 17, False),
    ("fastvit_t8", "fastvit", 8, 256, 17, False),
    ("efficientformer_l1", "efficientformer", 8, 224, 17, False),
    ("efficientvit_b0", "efficientvit", 16, 224, 17, False),
    ("repvit_m1_0", "repvit", 8, 224, 17, False),
    ("xcit_nano_12_p16_224", "xcit", 8, 224, 17, False),
    ("crossvit_tiny_240", "crossvit", 4, 240, 17, False),
    ("visformer_tiny", "visformer", 8, 224, 17, False),
    ("twins_svt_small", "twins", 4, 224, 17, False),
    ("maxvit_rmlp_pico_rw_256", "maxvit", 2, 256, 17, False),
    ("mvitv2_tiny", "mvit", 4, 224, 17, False),
    ("davit_tiny", "davit", 4, 224, 17, False),
    ("focalnet_tiny_srf", "focalnet", 8, 224, 17, False),
    ("convmixer_768_32", "convmixer", 2, 224, 17, False),
    ("caformer_s18", "metaformer", 4, 224, 17, False),
    ("convformer_s18", "metaformer", 8, 224, 18, False),
    ("dla34", "dla", 8, 224, 17, False),
    ("vgg11_bn", "vgg", 4, 224, 17, False),
    ("vgg16", "vgg", 1, 224, 18, False),
    ("darknet53", "darknet", 4, 256, 17, False),
    ("cspresnet50", "darknet", 4, 256, 17, False),
    ("ese_vovnet19b_dw", "vovnet", 8, 224, 17, False),
    ("hgnetv2_b0", "hgnet", 16, 224, 17, False),
    ("rexnet_100", "rexnet", 8, 224, 17, False),
    ("dpn68", "dpn", 4, 224, 17, False),
    ("starnet_s1", "starnet", 16, 224, 17, False),
    ("gernet_s", "gernet", 16, 224, 17, False),
    ("volo_d1_224", "volo", 1, 224, 17, False),
    ("convit_tiny", "vit", 8, 224, 18, False),
)
# builder in torchvision.models, family, shape, exporter opset
_TORCHVISION = (
    ("shufflenet_v2_x1_0", "shufflenet", (16, 3, 224, 224), 17),
    ("squeezenet1_1", "squeezenet", (8, 3, 224, 224), 17),
    ("mnasnet1_0", "mobilenet", (4, 3, 224, 224), 18),
    ("segmentation.lraspp_mobilenet_v3_large", "segmentation", (2, 3, 320, 320), 17),
    ("segmentation.fcn_resnet50", "segmentation", (1, 3, 256, 256), 17),
    ("video.r3d_18", "video", (1, 3, 8, 112, 112), 17),
    ("alexnet", "alexnet", (32, 3, 224, 224), 17),
    ("googlenet", "inception", (8, 3, 224, 224), 17),
    ("shufflenet_v2_x0_5", "shufflenet", (1, 3, 224, 224), 18),
    ("squeezenet1_0", "squeezenet", (32, 3, 224, 224), 18),
    ("segmentation.deeplabv3_mobilenet_v3_large", "segmentation", (1, 3, 256, 256), 17),
    ("video.mc3_18", "video", (2, 3, 8, 112, 112), 17),
    ("video.r2plus1d_18", "video", (1, 3, 8, 112, 112), 18),
)
# class and configuration in transformers, its options, family, batch, input, exporter opset
_TOKENS, _AUDIO, _IMAGE = "input_ids", "input_values", "pixel_values"
_TRANSFORMERS = (
    ("Bert", {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
     "bert", 1, (_TOKENS, 128), 17),
    ("Bert", {"num_hidden_layers": 6, "hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048},
     "bert", 16, (_TOKENS, 64), 18),
    ("DistilBert", {}, "bert", 4, (_TOKENS, 256), 17),
    ("Electra", {"num_hidden_layers": 12}, "bert", 8, (_TOKENS, 128), 17),
    ("GPT2", {"n_layer": 12, "n_embd": 512, "n_head": 8, "use_cache": False}, "gpt", 8, (_TOKENS, 64), 18),
    ("Llama", {"num_hidden_layers": 6, "hidden_size": 768, "intermediate_size": 2048, "num_attention_heads": 12,
               "num_key_value_heads": 4, "use_cache": False}, "llama", 2, (_TOKENS, 128), 18),
    ("Wav2Vec2", {"num_hidden_layers": 4}, "speech", 2, (_AUDIO, 16000), 17),
    ("CLIPVision", {"num_hidden_layers": 6}, "clip", 4, (_IMAGE, 224), 17),
    ("DPT", {}, "dpt", 1, (_IMAGE, 384), 17),
    ("Albert", {"num_hidden_layers": 6, "hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048},
     "bert", 4, (_TOKENS, 128), 17),
    ("Roberta", {"num_hidden_layers": 6}, "bert", 2, (_TOKENS, 256), 18),
    ("MobileBert", {"num_hidden_layers": 8}, "bert", 8, (_TOKENS, 64), 17),
    ("SqueezeBert", {"num_hidden_layers": 6}, "bert", 4, (_TOKENS, 128), 17),
    ("DistilBert", {}, "bert", 1, (_TOKENS, 64), 18),
    ("OPT", {"num_hidden_layers": 6, "hidden_size": 512, "ffn_dim": 2048, "num_attention_heads": 8,
             "word_embed_proj_dim": 512, "use_cache": False}, "gpt", 4, (_TOKENS, 64), 18),
    ("GPTNeoX", {"num_hidden_layers": 6, "hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8,
                 "use_cache": False}, "gpt", 2, (_TOKENS, 128), 18),
    ("GPT2", {"n_layer": 6, "n_embd": 768, "n_head": 12, "use_cache": False}, "gpt", 1, (_TOKENS, 256), 18),
    ("Qwen2", {"num_hidden_layers": 6, "hidden_size": 512, "intermediate_size": 1536, "num_attention_heads": 8,
               "num_key_value_heads": 2, "use_cache": False}, "llama", 4, (_TOKENS, 64), 18),
    ("Mistral", {"num_hidden_layers": 4, "hidden_size": 768, "intermediate_size": 2048, "num_attention_heads": 12,
                 "num_key_value_heads": 4, "use_cache": False}, "llama", 1, (_TOKENS, 256), 18),
    ("Hubert", {"num_hidden_layers": 4}, "speech", 1, (_AUDIO, 16000), 17),
    ("Wav2Vec2", {"num_hidden_layers": 6}, "speech", 1, (_AUDIO, 32000), 18),
    ("Dinov2", {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 6}, "vit", 4, (_IMAGE, 224), 18),
    ("SiglipVision", {"num_hidden_layers": 6}, "clip", 2, (_IMAGE, 224), 18),
    ("CLIPVision", {"num_hidden_layers": 4}, "clip", 16, (_IMAGE, 224), 18),
    ("Segformer", {}, "segformer", 2, (_IMAGE, 256), 17),
    ("Phi", {"num_hidden_layers": 6, "hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8,
             "use_cache": False}, "phi", 4, (_TOKENS, 128), 18),
)  # fmt: skip
# Families among them that are held out.
_HELD_OUT = ("phi",)


def _image(batch: int, size: int, channels: int = 3) -> dict[str, Input]:
    return {"image": Input((batch, channels, size, size))}


def _tokens(batch: int, length: int) -> dict[str, Input]:
    return {"tokens": Input((batch, length), (0, 8000), integer=True)}


def _spec(
    name: str,
    family: str,
    builder: str,
    options: Mapping[str, Any],
    inputs: Mapping[str, Input],
    dynamo: bool,
    held_out: bool = False,
) -> Spec:
    return Spec(f"{name}_gpu", family, builder, options, inputs, dynamo, held_out)


_TEXT = {"vocabulary": 8000}
_ZOO = (
    _spec("unet_w64_b2_s128", "unet", "unet:Unet", {"width": 64}, _image(2, 128), True),
    _spec("unet_w32_b8_s96", "unet", "unet:Unet", {"width": 32, "bilinear": True}, _image(8, 96), False),
    _spec("unet_w48_b1_s256", "unet", "unet:Unet", {"width": 48, "levels": 4}, _image(1, 256), False),
    _spec("vgg8_b8_s96", "vgg", "convolutional:Vgg", {"width": 64}, _image(8, 96), False),
    _spec("edsr_w64_b1_s128", "super_resolution", "super_resolution:Edsr", {"width": 64, "depth": 8},
          _image(1, 128), True),
    _spec("dlrm_b2048", "recommender", "recommender:Dlrm", {"fields": 26, "rows": 20000, "width": 64},
          {"dense": Input((2048, 13)), "sparse": Input((2048, 26), (0, 20000), integer=True)}, True),
    _spec("deepfm_b4096", "recommender", "recommender:DeepFm", {"fields": 24, "rows": 10000, "width": 32},
          {"dense": Input((4096, 13)), "sparse": Input((4096, 24), (0, 10000), integer=True)}, False),
    _spec("lstm_h512_b8_t64", "recurrent", "recurrent:Tagger", {"cell": "LSTM", "width": 512, "depth": 2, **_TEXT},
          _tokens(8, 64), False),
    _spec("gru_h512_b4_t64", "recurrent", "recurrent:Tagger", {"cell": "GRU", "width": 512, "depth": 1, **_TEXT},
          _tokens(4, 64), False),
    _spec("wavenet_w96_b4_t4096", "wavenet", "temporal:Wavenet", {"width": 96, "depth": 10},
          {"signal": Input((4, 1, 4096))}, True),
    _spec("tcn_w256_b16_t512", "tcn", "temporal:Tcn", {"width": 256, "depth": 6},
          {"signal": Input((16, 8, 512))}, False),
    _spec("bert_w512_d8_b8_t128", "bert", "transformer:Bert",
          {"width": 512, "depth": 8, "heads": 8, "length": 128, **_TEXT}, _tokens(8, 128), True),
    _spec("gpt_w512_d8_b4_t128", "gpt", "transformer:Gpt",
          {"width": 512, "depth": 8, "heads": 8, "length": 128, **_TEXT}, _tokens(4, 128), False),
    _spec("textcnn_b32_t256", "text_cnn", "text_cnn:TextCnn", {"width": 256, "filters": 256, **_TEXT},
          _tokens(32, 256), False),
    _spec("pointnet_b16_n2048", "pointnet", "pointnet:PointNet", {"width": 64}, {"signal": Input((16, 3, 2048))}, True),
    _spec("autoencoder_w96_b16_s64", "autoencoder", "autoencoder:Autoencoder", {"width": 96}, _image(16, 64), True),
    _spec("mixer_w384_b8_s128", "mixer", "mixer:Mixer", {"width": 384, "depth": 8, "size": 128}, _image(8, 128), True),
    _spec("unet_w64_b8_s64", "unet", "unet:Unet", {"width": 64}, _image(8, 64), False),
    _spec("vgg8_b32_s64", "vgg", "convolutional:Vgg", {"width": 96}, _image(32, 64), True),
    _spec("edsr_w96_b4_s64", "super_resolution", "super_resolution:Edsr", {"width": 96, "depth": 12},
          _image(4, 64), False),
    _spec("dlrm_b256", "recommender", "recommender:Dlrm", {"fields": 26, "rows": 20000, "width": 128},
          {"dense": Input((256, 13)), "sparse": Input((256, 26), (0, 20000), integer=True)}, False),
    _spec("deepfm_b512", "recommender", "recommender:DeepFm", {"fields": 24, "rows": 20000, "width": 64},
          {"dense": Input((512, 13)), "sparse": Input((512, 24), (0, 20000), integer=True)}, True),
    _spec("lstm_h256_b32_t32", "recurrent", "recurrent:Tagger", {"cell": "LSTM", "width": 256, "depth": 1, **_TEXT},
          _tokens(32, 32), False),
    _spec("wavenet_w64_b1_t16384", "wavenet", "temporal:Wavenet", {"width": 64, "depth": 12},
          {"signal": Input((1, 1, 16384))}, False),
    _spec("tcn_w384_b4_t1024", "tcn", "temporal:Tcn", {"width": 384, "depth": 5},
          {"signal": Input((4, 8, 1024))}, True),
    _spec("bert_w256_d6_b32_t64", "bert", "transformer:Bert",
          {"width": 256, "depth": 6, "heads": 4, "length": 64, **_TEXT}, _tokens(32, 64), False),
    _spec("gpt_w768_d4_b1_t256", "gpt", "transformer:Gpt",
          {"width": 768, "depth": 4, "heads": 12, "length": 256, **_TEXT}, _tokens(1, 256), True),
    _spec("textcnn_b8_t128", "text_cnn", "text_cnn:TextCnn", {"width": 512, "filters": 512, **_TEXT},
          _tokens(8, 128), True),
    _spec("pointnet_b4_n1024", "pointnet", "pointnet:PointNet", {"width": 96},
          {"signal": Input((4, 3, 1024))}, False),
    _spec("autoencoder_w64_b32_s64", "autoencoder", "autoencoder:Autoencoder", {"width": 64}, _image(32, 64), False),
    _spec("mixer_w512_b2_s224", "mixer", "mixer:Mixer", {"width": 512, "depth": 6, "size": 224}, _image(2, 224), False),
    _spec("conformer_w256_b8_t256", "conformer", "conformer:Conformer", {"width": 256, "depth": 8, "bands": 80},
          {"signal": Input((8, 80, 512))}, True, held_out=True),
)  # fmt: skip


def gpu_networks() -> tuple[Network, ...]:
    """Every network that can be made here, families taking turns, so that a collection cut short still holds many."""
    found = [_zoo(spec) for spec in _ZOO]
    found += [network for network in wheels.networks() if network.held_out]
    if _have("timm"):
        found += [_timm(*entry) for entry in _TIMM]
    if _have("torchvision"):
        found += [_torchvision(*entry) for entry in _TORCHVISION]
    if _have("transformers"):
        found += [_transformers(*entry) for entry in _TRANSFORMERS]
    return tuple(_taking_turns(found))


def _taking_turns(networks: list[Network]) -> list[Network]:
    queues: dict[str, list[Network]] = {}
    for network in networks:
        queues.setdefault(network.family, []).append(network)
    order = []
    while any(queues.values()):
        order += [queue.pop(0) for queue in queues.values() if queue]
    return order


def _have(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _zoo(spec: Spec) -> Network:
    def make(folder: Path) -> Path:
        from routecast.datasets.zoo.torch_modules.export import export

        return export(spec, folder)

    ranges = {name: each.range for name, each in spec.inputs.items()}
    return Network(spec.name, spec.family, "torch", make, ranges=ranges, held_out=spec.held_out)


def _timm(model: str, family: str, batch: int, size: int, opset: int, held_out: bool) -> Network:
    name = f"{model}_b{batch}_o{opset}"

    def build() -> Any:
        import timm

        os.environ["TIMM_FUSED_ATTN"] = "1"
        return timm.create_model(model, pretrained=False)

    make = partial(_make, name, build, (batch, 3, size, size), opset)
    return Network(name, family, "timm", make, held_out=held_out)


def _torchvision(path: str, family: str, shape: tuple[int, ...], opset: int) -> Network:
    name = f"{path.rpartition('.')[2]}_b{shape[0]}_o{opset}"

    def build() -> Any:
        folder, _, builder = path.rpartition(".")
        module = importlib.import_module("torchvision.models" + (f".{folder}" if folder else ""))
        options = {"weights": None, "weights_backbone": None} if folder == "segmentation" else {"weights": None}
        return _Output(getattr(module, builder)(**options))

    return Network(name, family, "torchvision", partial(_make, name, build, shape, opset))


def _transformers(
    model: str, options: Mapping[str, Any], family: str, batch: int, given: tuple[str, int], opset: int
) -> Network:
    kind, size = given
    name = f"{model.lower()}_{'_'.join(str(v) for v in options.values() if v is not False)}_b{batch}_{size}_o{opset}"
    name = name.replace("__", "_")

    def build() -> Any:
        import transformers

        config = getattr(transformers, f"{model}Config")(**options)
        config._attn_implementation = "sdpa" if opset >= 18 else "eager"
        return _Output(getattr(transformers, f"{model}Model")(config), kind)

    shape = {_TOKENS: (batch, size), _AUDIO: (batch, size), _IMAGE: (batch, 3, size, size)}[kind]
    ranges = {"input": (0.0, 1000.0)} if kind == _TOKENS else {}
    make = partial(_make, name, build, shape, opset, integer=kind == _TOKENS, settled=False)
    return Network(name, family, "transformers", make, ranges=ranges, held_out=family in _HELD_OUT)


def _Output(model: Any, argument: str = "") -> Any:  # noqa: N802  makes a class that needs torch
    """A module that returns one tensor, whatever ``model`` returns."""
    import torch
    from torch import nn

    class Output(nn.Module):
        """Keeps the first output."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input: Any) -> Any:
            """The first output."""
            found = self.model(**{argument: input}) if argument else self.model(input)
            return found if isinstance(found, torch.Tensor) else next(iter(found.values()))

    return Output()


def _make(
    name: str, build: Callable[[], Any], shape: tuple[int, ...], opset: int, folder: Path, *,
    integer: bool = False, settled: bool = True,
) -> Path:  # fmt: skip
    """Exports a network; TorchScript's exporter up to opset 17, the modern one above."""
    import torch

    from routecast.datasets.errors import RoutecastError
    from routecast.datasets.zoo.torch_modules.export import settle

    path = folder / f"{name}.onnx"
    torch.set_num_threads(2)
    torch.manual_seed(zlib.crc32(name.encode()))
    try:
        with (
            warnings.catch_warnings(),
            Path(os.devnull).open("w") as null,
            redirect_stdout(null),
            redirect_stderr(null),
        ):
            warnings.simplefilter("ignore")
            model = build()
            example = torch.randint(0, 1000, shape) if integer else torch.rand(shape) * 2 - 1
            if settled:
                settle(model, (example,))
            model.eval()
            with torch.no_grad():
                torch.onnx.export(
                    model,
                    (example,),
                    path,
                    input_names=["input"],
                    output_names=["output"],
                    opset_version=opset,
                    dynamo=opset > 17,
                    external_data=False,
                    verbose=False,
                )
    except Exception as error:  # whatever an exporter raises: this network is skipped
        raise RoutecastError(f"{name} cannot be exported: {type(error).__name__}: {str(error)[:200]}") from error
    from routecast.datasets.zoo.torch_modules.export import strip_notes  # torch only where a network is exported

    strip_notes(path)
    return path
