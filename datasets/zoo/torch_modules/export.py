"""Builds the torch networks with seeded weights and writes them as ONNX files."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import math
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from routecast.datasets.zoo.torch_modules.catalogue import Input, Spec

_MODERN_OPSET = 18
_TORCHSCRIPT_OPSET = 17
_LAYERS = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d, nn.Linear)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def export(spec: Spec, folder: Path) -> Path:
    """Writes the network of ``spec`` into ``folder``; the caller's random state stays as it was."""
    path = folder / f"{spec.name}.onnx"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(zlib.crc32(spec.name.encode()))
        module, _, name = spec.builder.partition(":")
        model: nn.Module = getattr(importlib.import_module(f"{__package__}.{module}"), name)(**spec.options)
        arguments = tuple(_draw(each) for each in spec.inputs.values())
        settle(model, arguments)
        _write(model, arguments, spec, path)
    strip_notes(path)
    return path


def settle(model: nn.Module, arguments: tuple[Tensor, ...]) -> None:
    """Draws weights that keep activations alive, and measures what batch normalisation will divide by."""
    for module in model.modules():
        if isinstance(module, _LAYERS):
            _draw_weights(module)
        elif isinstance(module, _NORMS):
            nn.init.uniform_(module.weight, 0.7, 1.3)
            nn.init.normal_(module.bias, 0.0, 0.2)
            module.momentum = None  # running statistics then are the plain average over what is seen
    model.train()
    with torch.no_grad():
        model(*arguments)
    model.eval()


def _draw_weights(layer: nn.Module) -> None:
    """He initialisation, and biases small but not zero, as after training."""
    weight, bias = layer.weight, layer.bias
    assert isinstance(weight, Tensor)
    fan_in = weight[0].numel()
    if isinstance(layer, nn.ConvTranspose2d):
        # Each output sees only every stride-th tap of the kernel, of all inputs.
        fan_in = weight.shape[0] * math.prod(layer.kernel_size) // math.prod(layer.stride)
    nn.init.normal_(weight, 0.0, math.sqrt(2.0 / fan_in))
    if isinstance(bias, Tensor):
        nn.init.normal_(bias, 0.0, 0.05)


def _draw(each: Input) -> Tensor:
    low, high = each.range
    if each.integer:
        return torch.randint(int(low), int(high), each.shape)
    return torch.empty(each.shape).uniform_(low, high)


def _write(model: nn.Module, arguments: tuple[Tensor, ...], spec: Spec, path: Path) -> None:
    """Exports, keeping the exporters' progress reports and deprecation notes to themselves."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), _only_errors("torch.onnx"):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            arguments,
            path,
            input_names=list(spec.inputs),
            output_names=["output"],
            opset_version=_MODERN_OPSET if spec.dynamo else _TORCHSCRIPT_OPSET,
            dynamo=spec.dynamo,
            external_data=False,
            verbose=False,
        )


@contextlib.contextmanager
def _only_errors(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def strip_notes(path: Path) -> None:
    """Drops the exporters' notes on source lines: they name folders, so files would differ by machine."""
    model = onnx.load(path)
    graph = model.graph
    for item in (
        model,
        graph,
        *graph.node,
        *graph.input,
        *graph.output,
        *graph.value_info,
        *graph.initializer,
    ):
        item.doc_string = ""
        del item.metadata_props[:]
    onnx.save(model, path)
