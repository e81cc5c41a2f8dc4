"""The trained cost model: several networks, none of which saw every family, and their calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from routecast.costmodel.base import MOST_LOSS, CostModel
from routecast.costmodel.calibration import Calibrations
from routecast.costmodel.familiarity import Familiarity
from routecast.costmodel.features import environment_features, graph_features
from routecast.costmodel.forest import Forest
from routecast.costmodel.member import Member
from routecast.costmodel.network import NetworkConfig, RouteNetwork
from routecast.costmodel.risks import Risks
from routecast.costmodel.scorer import GraphScorer
from routecast.costmodel.storage import read_model, write_model
from routecast.costmodel.view import EnsembleView
from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.graph import Graph

T = TypeVar("T")


@dataclass(frozen=True)
class Ensemble(CostModel):
    """K members whose mean is the prediction and whose spread is part of the uncertainty.

    Attributes:
        members: their networks are all of one configuration.
        calibrations: what predictions outside the training folds taught about errors.
        familiarity: what the training history held.
        training: how it was trained: digest of the history, configuration, versions.
        metrics: figures on families held out, by name.
    """

    members: Sequence[Member]
    calibrations: Calibrations
    familiarity: Familiarity
    training: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    name: str = "ensemble"

    def view(self, graph: Graph, environment: Environment, *, most_loss: float = MOST_LOSS) -> EnsembleView:
        """See ``CostModel.view``."""
        if not graph.nodes:
            raise UsageError("the model has no operators: there is nothing to predict")
        return EnsembleView(
            GraphScorer(self.members, graph_features(graph, environment), environment_features(environment)),
            calibrations=self.calibrations,
            familiarity=self.familiarity,
            warnings=self.familiarity.warnings(graph, environment),
            most_loss=most_loss,
        )

    def refusal(self, environment: Environment) -> str | None:
        """Why this environment rules the cost model out: a version of its back-end that was never measured."""
        return self.familiarity.refusal(environment)

    def of_any_version(self) -> Ensemble:
        """The same cost model, which refuses no version of a back-end."""
        return replace(self, familiarity=self.familiarity.of_any_version())

    def save(self, folder: str | Path) -> None:
        """Writes the weights, the trees and ``model.json`` into a folder."""
        weights = {
            f"{index}.{name}": tensor
            for index, member in enumerate(self.members)
            for name, tensor in member.network.state_dict().items()
        }
        trees = {
            f"{index}.{name}": array
            for index, member in enumerate(self.members)
            for name, array in member.forest.nodes.arrays().items()
        }
        description = {
            "network": asdict(self.members[0].network.config),
            "risks": [member.risks.to_json() for member in self.members],
            "columns": [member.forest.columns.to_json() for member in self.members],
            "calibrations": self.calibrations.to_json(),
            "familiarity": self.familiarity.to_json(),
            "training": dict(self.training),
            "metrics": dict(self.metrics),
        }
        write_model(Path(folder), weights, trees, description)

    @classmethod
    def load(cls, folder: str | Path) -> Ensemble:
        """Reads what ``save`` wrote.

        Raises:
            UsageError: the folder holds no cost model, a damaged one, or one of another schema.
        """
        weights, trees, description = read_model(Path(folder))
        try:
            config = NetworkConfig(**description["network"])
            members = [
                Member(
                    _network(config, _part(weights, index)),
                    Forest.read(columns, _part(trees, index)),
                    Risks.from_json(risks),
                )
                for index, (columns, risks) in enumerate(zip(description["columns"], description["risks"], strict=True))
            ]
            return cls(
                members=members,
                calibrations=Calibrations.from_json(description["calibrations"]),
                familiarity=Familiarity.from_json(description["familiarity"]),
                training=description["training"],
                metrics=description["metrics"],
            )
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise UsageError(f"the cost model in {folder} is damaged ({reason}): train and save it again") from error


def _network(config: NetworkConfig, weights: Mapping[str, Tensor]) -> RouteNetwork:
    network = RouteNetwork(config)
    network.load_state_dict(weights)
    return network.eval()


def _part(arrays: Mapping[str, T], index: int) -> dict[str, T]:
    """The arrays of one member, by their own names."""
    prefix = f"{index}."
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
