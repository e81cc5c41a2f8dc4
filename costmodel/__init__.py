"""What will happen: predicts how fast each build route of a model runs, and how sure that is.

``load_cost_model`` gives a trained model; ``CostModel.view`` encodes a graph for a device once, and the view
scores thousands of routes against it. Importing this package does not import torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from routecast.costmodel.base import CostModel, ModelView, Predictions
from routecast.datasets.errors import UsageError

if TYPE_CHECKING:
    from routecast.costmodel.ensemble import Ensemble

__all__ = ["CostModel", "Ensemble", "ModelView", "Predictions", "load_cost_model"]

BUILTIN = Path(__file__).parent / "builtin"


def load_cost_model(path: str | Path | None = None) -> Ensemble:
    """Loads a trained cost model.

    Args:
        path: the folder that ``Ensemble.save`` wrote; None for the weights shipped with the package.

    Raises:
        UsageError: there is no such folder, it is damaged, or another schema wrote it.
    """
    from routecast.costmodel.ensemble import Ensemble

    if path is None and not (BUILTIN / "model.json").exists():
        raise UsageError("no weights are shipped with this package: train some with `routecast train`")
    return Ensemble.load(BUILTIN if path is None else Path(path))


def __getattr__(name: str) -> object:
    """Loads ``Ensemble``, and torch with it, when it is first asked for."""
    if name == "Ensemble":
        from routecast.costmodel.ensemble import Ensemble

        return Ensemble
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
