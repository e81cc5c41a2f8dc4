"""What a user says about files to import: what the files themselves cannot tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from routecast.datasets.route import Route


@dataclass(frozen=True)
class ImportRequest:
    """What the files are about, where they do not say it.

    Attributes:
        model: the ONNX file that was measured; None to find it by the path that each file records.
        folders: where to look for ONNX files, with all folders in them. A recorded path is looked up in no other place,
            except directly from the folder of the file that records it.
        shapes: input shapes by name, for models with dynamic axes whose shapes the files do not record.
        device: marketing name of the GPU; it replaces the recorded one.
        backend_version: version of TensorRT, for files that do not record it.
        route: what was measured, for files that record no route; None when nobody said.
        family: architecture family of the models.
    """

    model: Path | None = None
    folders: tuple[Path, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    device: str = ""
    backend_version: str = ""
    route: Route | None = None
    family: str = "unknown"
