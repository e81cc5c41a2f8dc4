from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from routecast.costmodel import load_cost_model
from routecast.datasets.errors import UsageError
from routecast.datasets.records import Records
from routecast.training import TrainConfig, TrainingResult, TrainObserver, train_ensemble
from routecast.training.out_of_fold import OutOfFold, figures

Generator = Callable[..., Records]
QUICK = TrainConfig(members=2, epochs=2)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weights(result: TrainingResult) -> list[torch.Tensor]:
    return [tensor for member in result.model.members for tensor in member.network.state_dict().values()]


def popularity(found: OutOfFold) -> OutOfFold:
    """Predictions of ridge regression on the settings alone, trained on the same folds."""
    rows = found.routes
    tokens = sorted({token for route in rows.routes for token in route.items()})
    settings = np.array([[float(route.get(name) == value) for name, value in tokens] for route in rows.routes])
    predicted = np.zeros(len(rows))
    for fold in np.unique(rows.member):
        known, held = settings[rows.member != fold], rows.member == fold
        gram = known.T @ known + np.eye(len(tokens))
        predicted[held] = settings[held] @ np.linalg.solve(gram, known.T @ rows.log_ratio[rows.member != fold])
    return replace(found, routes=replace(rows, predicted=predicted))


def test_same_seed_gives_the_same_weights(synthetic: Generator) -> None:
    records = synthetic(["cnn", "mixer", "unet"], models=1, routes=4)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = train_ensemble(records, QUICK)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(3)
    second = train_ensemble(records, QUICK)
    other = train_ensemble(records, replace(QUICK, seed=1))
    assert all(torch.equal(left, right) for left, right in zip(weights(first), weights(second), strict=True))
    assert not all(torch.equal(left, right) for left, right in zip(weights(first), weights(other), strict=True))


def test_every_route_is_predicted_by_a_member_that_did_not_see_its_family(synthetic: Generator) -> None:
    records = synthetic(["cnn", "mixer", "unet"], models=2, routes=4)
    found = train_ensemble(records, replace(QUICK, members=3)).out_of_fold
    assert len(found.routes) == 3 * 2 * 4
    assert sorted(zip(found.routes.fingerprint, map(str, found.routes.routes), strict=True)) == sorted(
        (item.fingerprint, str(item.route)) for item in records.measurements if item.route
    )
    folds = {family: set() for family in found.routes.family}  # type: ignore[var-annotated]
    for family, member in zip(found.routes.family, found.routes.member, strict=True):
        folds[family].add(member)
    assert all(len(members) == 1 for members in folds.values())
    assert len({min(members) for members in folds.values()}) == 3


def test_member_does_not_depend_on_the_families_it_must_not_see(synthetic: Generator) -> None:
    records = synthetic(["cnn", "mixer"], models=1, routes=4)
    changed = synthetic(["cnn", "mixer"], models=1, routes=4)
    changed.measurements = [
        replace(item, ratio=item.ratio * 2) if item.family == "cnn" and item.ratio else item
        for item in changed.measurements
    ]
    first, second = train_ensemble(records, QUICK), train_ensemble(changed, QUICK)
    same = [
        all(
            torch.equal(left, right)
            for left, right in zip(a.network.state_dict().values(), b.network.state_dict().values(), strict=True)
        )
        for a, b in zip(first.model.members, second.model.members, strict=True)
    ]
    assert sorted(same) == [False, True]


def test_saved_model_is_the_trained_one(synthetic: Generator, tmp_path: Path) -> None:
    records = synthetic(["cnn", "mixer"], models=1, routes=4)
    result = train_ensemble(records, QUICK)
    result.model.save(tmp_path)
    loaded = load_cost_model(tmp_path)
    measured = records.measurements[1]
    graph, environment = records.graphs[measured.fingerprint], records.environments[measured.environment]
    before, after = (model.view(graph, environment).predict([measured.route]) for model in (result.model, loaded))
    assert before.log_ratio == after.log_ratio
    assert loaded.training["digest"] == records.digest()
    assert loaded.familiarity == result.model.familiarity


def test_one_family_trains_but_says_that_it_is_not_calibrated(synthetic: Generator) -> None:
    records = synthetic(["cnn"], models=2, routes=4)
    result = train_ensemble(records, QUICK)
    graph, environment = next(iter(records.graphs.values())), next(iter(records.environments.values()))
    assert len(result.out_of_fold.routes) == 0
    assert any("guesses" in warning for warning in result.model.view(graph, environment).warnings)


@pytest.mark.parametrize("routes", [0, None])
def test_nothing_to_train_on_is_said(synthetic: Generator, routes: int | None) -> None:
    records = Records() if routes is None else synthetic(["cnn"], models=1, routes=routes)
    with pytest.raises(UsageError, match="nothing to train on"):
        train_ensemble(records, QUICK)


def test_observer_is_told(synthetic: Generator) -> None:
    told: list[object] = []

    class Listener(TrainObserver):
        def started(self, members: int, epochs: int, examples: int) -> None:
            told.append((members, epochs, examples))

        def epoch(self, member: int, epoch: int, losses: Mapping[str, float]) -> None:
            assert all(np.isfinite(list(losses.values())))
            told.append((member, epoch))

        def finished(self, result: TrainingResult) -> None:
            told.append(result)

    result = train_ensemble(synthetic(["cnn", "mixer"], models=1, routes=4), QUICK, Listener())
    assert told == [(2, 2, 2), (0, 0), (0, 1), (1, 0), (1, 1), result]


@pytest.mark.slow
def test_learns_what_settings_do_to_families_it_never_saw(synthetic: Generator) -> None:
    families = ["cnn", "mobile", "transformer", "mixer", "recommender", "unet", "elementwise", "hybrid"]
    result = train_ensemble(synthetic(families, models=4, routes=30), TrainConfig(members=4, epochs=60))
    learned, simple = result.metrics, figures(popularity(result.out_of_fold))
    assert learned["spearman"] > simple["spearman"] + 0.1
    assert learned["ratio_mae_log"] < 0.8 * simple["ratio_mae_log"]
    assert learned["regret_at_8"] < simple["regret_at_8"]
    assert learned["default_spearman"] > 0.8
    assert 0.75 < learned["coverage"] <= 1.0
