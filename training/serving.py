"""Makes a saved cost model an MLflow model too, which ``mlflow models serve`` and ``mlflow.pyfunc.load_model`` take.

Nothing is pickled: the MLflow model is a few lines of Python beside the weights ("models from code"), which need
routecast and nothing else. See ``routecast.tuner.serving`` for what it answers.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from routecast.training.mlflow_store import quieten

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

CODE = '''"""The cost model in this folder as an MLflow model."""

from pathlib import Path

from mlflow.models import set_model

from routecast.tuner.serving import RankingModel

set_model(RankingModel(Path(__file__).parent))
'''
CODE_NAME = "ranking_model.py"


def add_pyfunc(folder: Path) -> None:
    """Writes MLflow's description and the code beside the weights; what is there stays as it is."""
    quieten()
    from mlflow import pyfunc

    with tempfile.TemporaryDirectory() as scratch:
        code, made = Path(scratch) / CODE_NAME, Path(scratch) / "made"
        code.write_text(CODE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice to derive the signature from type hints or an example
            pyfunc.save_model(
                made,
                python_model=str(code),
                signature=signature(),
                pip_requirements=[f"routecast=={version('routecast')}"],
            )
        shutil.copytree(made, folder, dirs_exist_ok=True)


def signature() -> ModelSignature:
    """What a request holds: a row per model, and parameters for all rows.

    What rows may lack is of any type here, because MLflow takes no empty cell for a map or list; it is checked later.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec
    from mlflow.types.schema import AnyType

    anything = AnyType()  # type: ignore[no-untyped-call]
    columns: list[ColSpec | TensorSpec] = [
        ColSpec(DataType.string, "model"),
        ColSpec(anything, "shapes", required=False),
        ColSpec(DataType.string, "backend", required=False),
        ColSpec(anything, "environment", required=False),
        ColSpec(anything, "routes", required=False),
    ]
    params = [
        ParamSpec("top", DataType.long, 10),
        ParamSpec("pool", DataType.long, 4096),
        ParamSpec("seed", DataType.long, 0),
        ParamSpec("numerics", DataType.boolean, True),
        ParamSpec("any_version", DataType.boolean, False),
    ]
    return ModelSignature(inputs=Schema(columns), params=ParamSchema(params))
