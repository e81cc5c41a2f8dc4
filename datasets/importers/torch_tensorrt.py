"""Torch-TensorRT's tuning cache (``tuning_cache_file``): trtexec's lines under a header of its own.

What differs from trtexec's, as its sources show: the network is a partition of a PyTorch module, so no ONNX file is
named and the user must say which one it is; ``gpu_time`` is the median of ten runs without a CUDA graph, which makes it
a backend of its own here; the iterations of a mixed search are numbered through; a route that exceeds what is left of
the time limit of the whole search counts as crashed there, and is left out here.
"""

from __future__ import annotations

from collections import Counter

from routecast.datasets.build_routes import BuildRouteReader
from routecast.datasets.environment import Environment
from routecast.datasets.importers.rows import CacheRows, Losses
from routecast.datasets.importers.session import Session, one_line
from routecast.datasets.importers.trtexec import NO_DEFAULTS, NO_HEADER, Part, default_settings, split_parts
from routecast.datasets.route import Route

BACKEND = "torch-tensorrt"


def read_cache(text: str) -> list[Session]:
    """Reads a tuning cache; several may follow each other in one file."""
    return [_session(part) for part in split_parts(text)]


def _session(part: Part) -> Session:
    header = part.header or {}
    environment = Environment(BACKEND, "", "", tuner_version=one_line(header.get("tuner_version") or "", 40))
    defaults = default_settings(header)
    if defaults is None:
        reason = NO_HEADER if part.header is None else NO_DEFAULTS
        return Session(environment, skipped=Counter({reason: len(part.lines)}))
    rows = CacheRows(BuildRouteReader(defaults), Route(), Losses.of(header, 1), restarts=False)
    for line in part.lines:
        rows.add(line)
    return Session(environment, rows.rows(), skipped=rows.skipped, notes=rows.notes)
