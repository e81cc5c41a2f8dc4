"""What was measured: models, routes, environments, measurements and their history."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from routecast.datasets.environment import Environment
    from routecast.datasets.errors import MissingPackage, RoutecastError, UsageError
    from routecast.datasets.graph import Graph, Node, Tensor
    from routecast.datasets.history import History, HistoryStats
    from routecast.datasets.journal import Journal
    from routecast.datasets.measurement import LocalTime, Measurement, Purpose, Status
    from routecast.datasets.model import InputSpec, Model, open_model, write_static
    from routecast.datasets.parquet_history import ParquetHistory
    from routecast.datasets.records import Records, builtin_records
    from routecast.datasets.route import Knob, Route, RouteSpace
    from routecast.datasets.splits import family_folds, held_out_families

__all__ = [
    "Environment",
    "Graph",
    "History",
    "HistoryStats",
    "InputSpec",
    "Journal",
    "Knob",
    "LocalTime",
    "Measurement",
    "MissingPackage",
    "Model",
    "Node",
    "ParquetHistory",
    "Purpose",
    "Records",
    "Route",
    "RouteSpace",
    "RoutecastError",
    "Status",
    "Tensor",
    "UsageError",
    "builtin_records",
    "family_folds",
    "held_out_families",
    "open_model",
    "write_static",
]

_MODULES = {
    "environment": ("Environment",),
    "errors": ("MissingPackage", "RoutecastError", "UsageError"),
    "graph": ("Graph", "Node", "Tensor"),
    "history": ("History", "HistoryStats"),
    "journal": ("Journal",),
    "measurement": ("LocalTime", "Measurement", "Purpose", "Status"),
    "model": ("InputSpec", "Model", "open_model", "write_static"),
    "parquet_history": ("ParquetHistory",),
    "records": ("Records", "builtin_records"),
    "route": ("Knob", "Route", "RouteSpace"),
    "splits": ("family_folds", "held_out_families"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports what is asked for only then: onnx and SQLAlchemy are slow to load."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
