"""The trained cost model: several networks, none of which saw every family, and their calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from routecast.costmodel.base import CostModel
from routecast.costmodel.calibration import Calibration
from routecast.costmodel.familiarity import Familiarity
from routecast.costmodel.network import NetworkConfig, RouteNetwork
from routecast.costmodel.scorer import GraphScorer
from routecast.costmodel.storage import read_model, write_model
from routecast.costmodel.view import EnsembleView
from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.graph import Graph


@dataclass(frozen=True)
class Ensemble(CostModel):
    """K networks whose mean is the prediction and whose spread is part of the uncertainty.

    Attributes:
        members: the networks, all of one configuration, in evaluation mode.
        ratio: calibration of log ratios.
        default: calibration of ln(default latency in ms).
        familiarity: what the training history held.
        training: how it was trained: digest of the history, configuration, versions.
        metrics: figures on families held out, by name.
    """

    members: Sequence[RouteNetwork]
    ratio: Calibration
    default: Calibration
    familiarity: Familiarity
    training: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    name: str = "ensemble"

    def view(self, graph: Graph, environment: Environment) -> EnsembleView:
        """Encodes a graph for a device."""
        if not graph.nodes:
            raise UsageError("the model has no operators: there is nothing to predict")
        return EnsembleView(
            GraphScorer(self.members, graph, environment),
            ratio=self.ratio,
            default=self.default,
            familiarity=self.familiarity,
            warnings=self.familiarity.warnings(graph, environment),
        )

    def refusal(self, environment: Environment) -> str | None:
        """Why this environment rules the cost model out: a version of its back-end that was never measured."""
        return self.familiarity.refusal(environment)

    def of_any_version(self) -> Ensemble:
        """The same cost model, which refuses no version of a back-end."""
        return replace(self, familiarity=self.familiarity.of_any_version())

    def save(self, folder: str | Path) -> None:
        """Writes ``weights.safetensors`` and ``model.json`` into a folder."""
        weights = {
            f"{index}.{name}": tensor
            for index, member in enumerate(self.members)
            for name, tensor in member.state_dict().items()
        }
        description = {
            "network": asdict(self.members[0].config),
            "members": len(self.members),
            "calibration": {"ratio": self.ratio.to_json(), "default": self.default.to_json()},
            "familiarity": self.familiarity.to_json(),
            "training": dict(self.training),
            "metrics": dict(self.metrics),
        }
        write_model(Path(folder), weights, description)

    @classmethod
    def load(cls, folder: str | Path) -> Ensemble:
        """Reads what ``save`` wrote.

        Raises:
            UsageError: the folder holds no cost model, a damaged one, or one of another schema.
        """
        weights, description = read_model(Path(folder))
        try:
            config = NetworkConfig(**description["network"])
            members = [_member(config, weights, index) for index in range(description["members"])]
            return cls(
                members=members,
                ratio=Calibration.from_json(description["calibration"]["ratio"]),
                default=Calibration.from_json(description["calibration"]["default"]),
                familiarity=Familiarity.from_json(description["familiarity"]),
                training=description["training"],
                metrics=description["metrics"],
            )
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise UsageError(f"the cost model in {folder} is damaged ({reason}): train and save it again") from error


def _member(config: NetworkConfig, weights: Mapping[str, Any], index: int) -> RouteNetwork:
    network = RouteNetwork(config)
    prefix = f"{index}."
    network.load_state_dict(
        {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
    )
    return network.eval()
