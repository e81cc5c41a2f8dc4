"""Trained networks that PyPI wheels carry, found in their folders without importing the packages.

The wheels may be installed without their dependencies (``pip install --no-deps``): only their ONNX files
are read.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from routecast.datasets.zoo.entry import Network


@dataclass(frozen=True)
class _Source:
    """One ONNX file in a package, with the inputs to feed."""

    name: str
    family: str
    package: str
    file: str
    shapes: Mapping[str, tuple[int, ...]]
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    held_out: bool = False


_OCR = "rapidocr_onnxruntime"
_DETECTOR = "models/ch_PP-OCRv4_det_infer.onnx"
_RECOGNISER = "models/ch_PP-OCRv4_rec_infer.onnx"
_CLASSIFIER = "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"
_PIXELS = {"x": (-1.0, 1.0)}
# Noise is not text: only strong noise makes the detector answer anything but zero.
_STRONG = {"x": (-64.0, 64.0)}
_WAVE = {"input": (-0.5, 0.5)}
_STATE = {"h": (-0.5, 0.5), "c": (-0.5, 0.5)}
_BYTES = {"bytes": (32.0, 127.0)}
_COLOURS = {"images": (0.0, 1.0)}


def _voice(steps: int) -> dict[str, tuple[int, ...]]:
    """Input shapes of the voice detector over a sequence of windows."""
    return {"input": (steps, 576), "h": (1, 1, 128), "c": (1, 1, 128)}


_SOURCES = (
    _Source("ocr_detector_b1_s160", "ocr_detection", _OCR, _DETECTOR, {"x": (1, 3, 160, 160)}, _STRONG),
    _Source("ocr_detector_b1_s256", "ocr_detection", _OCR, _DETECTOR, {"x": (1, 3, 256, 256)}, _STRONG),
    _Source("ocr_orientation_b1", "ocr_orientation", _OCR, _CLASSIFIER, {"x": (1, 3, 48, 192)}, _PIXELS),
    _Source("ocr_orientation_b6", "ocr_orientation", _OCR, _CLASSIFIER, {"x": (6, 3, 48, 192)}, _PIXELS),
    _Source("ocr_recogniser_b1_w160", "ocr_recognition", _OCR, _RECOGNISER, {"x": (1, 3, 48, 160)}, _PIXELS, True),
    _Source("ocr_recogniser_b2_w224", "ocr_recognition", _OCR, _RECOGNISER, {"x": (2, 3, 48, 224)}, _PIXELS, True),
    _Source(
        "silero_vad_t32",
        "voice_activity",
        "silero_vad",
        "data/silero_vad_16k_sequence.onnx",
        _voice(32),
        _WAVE | _STATE,
    ),
    _Source(
        "silero_vad_t128",
        "voice_activity",
        "silero_vad",
        "data/silero_vad_16k_sequence.onnx",
        _voice(128),
        _WAVE | _STATE,
    ),
    _Source("magika_b1", "file_type", "magika", "models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}, _BYTES),
    _Source("magika_b4", "file_type", "magika", "models/standard_v3_3/model.onnx", {"bytes": (4, 2048)}, _BYTES),
    _Source("nudenet_b1_s192", "yolo", "nudenet", "320n.onnx", {"images": (1, 3, 192, 192)}, _COLOURS, True),
    _Source("nudenet_b1_s320", "yolo", "nudenet", "320n.onnx", {"images": (1, 3, 320, 320)}, _COLOURS, True),
)


def networks() -> tuple[Network, ...]:
    """Returns the networks of those wheels that are installed."""
    found = ((source, _installed(source.package, source.file)) for source in _SOURCES)
    return tuple(
        Network(
            name=source.name,
            family=source.family,
            source="wheel",
            make=partial(_copy, path, source.name),
            shapes=source.shapes,
            ranges=source.ranges,
            held_out=source.held_out,
        )
        for source, path in found
        if path is not None
    )


def _installed(package: str, file: str) -> Path | None:
    """Returns the file of an installed package, or None; top-level packages are found without import."""
    spec = importlib.util.find_spec(package)
    for root in (spec and spec.submodule_search_locations) or ():
        path = Path(root, file)
        if path.is_file():
            return path
    return None


def _copy(source: Path, name: str, folder: Path) -> Path:
    """Copies the file, since some tools write next to what they read."""
    return Path(shutil.copyfile(source, folder / f"{name}.onnx"))
