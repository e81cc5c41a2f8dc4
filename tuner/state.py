"""What of a tune must outlive a kill, besides the measurements in the history."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routecast.datasets.errors import UsageError
from routecast.tuner.results import RoutePrediction

# A tune may be resumed with a greater budget.
_MAY_CHANGE = frozenset({"builds", "rounds", "minutes", "any_version"})


@dataclass
class TuneState:
    """``state.json`` in the output folder.

    Attributes:
        output: the folder.
        run: identity of the tune, which its measurements carry.
        fingerprint: of the model's graph.
        settings: options of the tune, as JSON values.
        predictions: what the cost model said of the routes asked for so far.
    """

    output: Path
    run: str
    fingerprint: str
    settings: Mapping[str, Any]
    predictions: list[RoutePrediction]

    @classmethod
    def begin(cls, output: Path, fingerprint: str, settings: Mapping[str, Any]) -> TuneState:
        """Starts anew in a folder, which is made if need be."""
        output.mkdir(parents=True, exist_ok=True)
        state = cls(output, uuid.uuid4().hex[:12], fingerprint, settings, [])
        state.save()
        return state

    @classmethod
    def resume(cls, output: Path, fingerprint: str, settings: Mapping[str, Any]) -> TuneState:
        """Reads what an interrupted tune left.

        Raises:
            UsageError: there is nothing to resume, or it was another model or other options.
        """
        path = output / "state.json"
        if not path.exists():
            raise UsageError(f"nothing to resume in {output}: it holds no state.json; start without --resume")
        data = json.loads(path.read_text())
        if data["fingerprint"] != fingerprint:
            raise UsageError(f"{output} holds the tune of another model: give its own --output or start anew")
        before = data["settings"]
        changed = [name for name in settings if name not in _MAY_CHANGE and settings[name] != before.get(name)]
        if changed:
            raise UsageError(f"the tune in {output} began with other options: {', '.join(sorted(changed))}")
        predictions = [RoutePrediction.from_json(item) for item in data["predictions"]]
        return cls(output, data["run"], fingerprint, settings, predictions)

    def save(self) -> None:
        """Writes it, whole or not at all."""
        data = {**vars(self), "output": str(self.output), "predictions": [p.to_json() for p in self.predictions]}
        partial = self.output / "state.partial"
        partial.write_text(json.dumps(data))
        partial.replace(self.output / "state.json")
