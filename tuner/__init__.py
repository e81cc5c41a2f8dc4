"""Acting on predictions: backends, measuring, search, tuning, collecting and comparing.

Importing this package imports nothing heavy; what it exports is imported when asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from routecast.tuner.collection import CollectConfig, CollectSummary, collect
    from routecast.tuner.results import Observer, RoutePrediction, TuneResult
    from routecast.tuner.tuning import TuneConfig, tune

__all__ = [
    "CollectConfig",
    "CollectSummary",
    "Observer",
    "RoutePrediction",
    "TuneConfig",
    "TuneResult",
    "collect",
    "tune",
]

# The modules do not bear the names of the functions: a module, once imported, would hide the function.
_MODULES = {
    "collection": ("CollectConfig", "CollectSummary", "collect"),
    "results": ("Observer", "RoutePrediction", "TuneResult"),
    "tuning": ("TuneConfig", "tune"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports what is asked for only then."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
