"""Learning from history: training, evaluation on families held out, and the registry of cost models.

``train`` makes a cost model from a history, records it in MLflow, and makes it the champion when it beats the
champion of today; ``find_cost_model`` gives the cost model to predict with. Importing this package imports
neither torch nor MLflow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from routecast.training.config import TrainConfig, TrainObserver
    from routecast.training.evaluation import Evaluation, evaluate
    from routecast.training.retraining import Policy, RetrainOutcome, retrain, roll_back
    from routecast.training.run import TrainOutcome, find_cost_model, train
    from routecast.training.tracking import load_champion, tracking_uri
    from routecast.training.trainer import TrainingResult, train_ensemble

__all__ = [
    "Evaluation",
    "Policy",
    "RetrainOutcome",
    "TrainConfig",
    "TrainObserver",
    "TrainOutcome",
    "TrainingResult",
    "evaluate",
    "find_cost_model",
    "load_champion",
    "retrain",
    "roll_back",
    "tracking_uri",
    "train",
    "train_ensemble",
]

# The modules do not bear the names of the functions: a module, once imported, would hide the function.
_MODULES = {
    "evaluation": ("Evaluation", "evaluate"),
    "retraining": ("Policy", "RetrainOutcome", "retrain", "roll_back"),
    "run": ("TrainOutcome", "find_cost_model", "train"),
    "tracking": ("load_champion", "tracking_uri"),
    "config": ("TrainConfig", "TrainObserver"),
    "trainer": ("TrainingResult", "train_ensemble"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports what is asked for only then: torch and MLflow are slow to load."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
