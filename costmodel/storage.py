"""A cost model on disk: two files of arrays and ``model.json`` in one folder, never pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
import safetensors.numpy
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from routecast.datasets.errors import UsageError

SCHEMA = 3
"""Changes whenever features, network or this format change, so that old weights cannot be misread."""

WEIGHTS, TREES, DESCRIPTION = "weights.safetensors", "trees.safetensors", "model.json"

Arrays = dict[str, npt.NDArray[Any]]


def write_model(folder: Path, weights: Mapping[str, Tensor], trees: Arrays, description: Mapping[str, Any]) -> None:
    """Writes weights as float16, trees as they are, and the description that goes with them."""
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(trees, folder / TREES)
    save_file({name: tensor.half().contiguous() for name, tensor in weights.items()}, folder / WEIGHTS)
    text = json.dumps({"schema": SCHEMA, **description}, indent=1, sort_keys=True)
    (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")


def read_model(folder: Path) -> tuple[dict[str, Tensor], Arrays, dict[str, Any]]:
    """Reads what ``write_model`` wrote; the weights come back as float32.

    Raises:
        UsageError: the folder holds no cost model, a damaged one, or one of another schema.
    """
    try:
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        schema = description["schema"]
    except OSError as error:
        raise UsageError(f"no cost model in {folder}: {error.strerror} ({DESCRIPTION}); give a saved folder") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder / DESCRIPTION} does not describe a cost model: train and save it again") from error
    if schema != SCHEMA:
        raise UsageError(
            f"the cost model in {folder} has schema {schema}, this version reads schema {SCHEMA}: "
            "train it again with `routecast train`"
        )
    try:
        weights, trees = load_file(folder / WEIGHTS), safetensors.numpy.load_file(folder / TREES)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"the weights of the cost model in {folder} cannot be read: {error}") from error
    return {name: tensor.to(torch.float32) for name, tensor in weights.items()}, trees, description
