from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial

import pytest

from routecast import costmodel
from routecast.costmodel.network import NetworkConfig
from routecast.costmodel.storage import SCHEMA
from routecast.datasets.errors import UsageError
from routecast.datasets.exclusive import Busy
from routecast.datasets.history import History
from routecast.training import Policy, TrainConfig, retrain, retraining, roll_back, run, train_ensemble
from routecast.training.mlflow_store import connect
from routecast.training.registry import MODEL

SMALL = TrainConfig(members=2, epochs=2, network=NetworkConfig(hidden=16, text=8, layers=1, heads=2, pair=8))
FAMILIES = ["cnn", "transformer", "mixer"]


@pytest.fixture(autouse=True)
def no_shipped_weights(store, tmp_path, monkeypatch):
    for module in (run, costmodel, retraining):
        monkeypatch.setattr(module, "BUILTIN", tmp_path / "nothing")


@pytest.fixture(autouse=True)
def only_what_is_looked_at(monkeypatch):
    """Charts and baselines take most of a tiny training's time; ``test_run`` makes them."""
    monkeypatch.setattr(run, "draw", lambda evaluation, found, folder: folder.mkdir())
    monkeypatch.setattr(run, "evaluate", partial(run.evaluate, make_baselines=list))


@pytest.fixture
def history(synthetic, tmp_path):
    """Of 24 routes; the path."""
    path = tmp_path / "history.db"
    add(path, synthetic(FAMILIES, 1, 8))
    return path


def add(path, records, factor: float = 1.0) -> None:
    """Stores records with their ratios multiplied."""
    records.measurements = [
        item if item.route.is_default else replace(
            item, ratio=item.ratio * factor, ratio_low=item.ratio_low * factor, ratio_high=item.ratio_high * factor
        )
        for item in records.measurements
    ]  # fmt: skip
    with History(path) as history:
        history.import_records(records)


def do(history, min_new: int = 20, **options):
    return retrain(history, policy=Policy(min_new), config=SMALL, builtin=False, **options)


def aliases() -> dict[str, str]:
    found = connect().search_registered_models()
    return {name: str(version) for item in found for name, version in item.aliases.items()}


@pytest.fixture
def ending(history, monkeypatch):
    """Makes the next trainings end with given out-of-fold predictions, as a function of the truth."""
    with History(history) as opened:
        real = train_ensemble(opened.records(), SMALL)

    def set_ending(of_truth):
        rows = replace(real.out_of_fold.routes, predicted=of_truth(real.out_of_fold.routes.log_ratio))
        result = replace(real, out_of_fold=replace(real.out_of_fold, routes=rows))
        monkeypatch.setattr(run, "train_ensemble", lambda *_: result)

    return set_ending


def test_the_first_trains_and_the_next_has_nothing_to_do(history):
    first = do(history)
    assert (first.action, first.champion, first.version, first.new) == ("promoted", "1", "1", 24)
    assert str(first) == "promoted: version 1 (24 new routes, 20 are enough): there was no champion"
    told = connect().get_run(first.run_id).data
    assert told.tags["retrain"] == "24 new routes, 20 are enough"
    assert told.tags["source"] == str(history)
    assert told.metrics["retrain.new"] == 24
    assert {"heldout.spearman", "family.cnn.spearman"} <= set(told.metrics)
    second = do(history)
    assert (second.action, second.champion, second.version, second.new) == ("skipped", "1", "", 0)
    assert "0 new routes of the 20 wanted" in second.reason
    assert json.dumps(first.to_json())


def test_a_dry_run_says_what_would_be_done_and_does_nothing(history, tmp_path):
    found = do(history, dry_run=True)
    assert (found.action, found.reason) == ("would_train", "24 new routes, 20 are enough")
    assert connect().search_registered_models() == []
    assert connect().get_experiment_by_name("routecast") is None
    assert do(history, 25, dry_run=True).action == "skipped"
    assert sorted(path.name for path in tmp_path.glob("history.db*lock*")) == []


def test_too_little_is_not_trained_on(history):
    found = do(history, 25)
    assert (found.action, found.champion) == ("skipped", "")
    assert aliases() == {}


def test_what_lost_once_is_not_trained_again_before_more_is_new(history, ending, synthetic):
    ending(lambda truth: truth)
    assert do(history).action == "promoted"
    add(history, synthetic(["unet"], 4, 8, seed=1))
    ending(lambda truth: -truth)
    lost = do(history)
    assert (lost.action, lost.champion, lost.version) == ("kept", "1", "2")
    assert "not promoted" in lost.reason
    again = do(history)
    assert (again.action, again.new) == ("skipped", 0)
    assert aliases() == {"champion": "1"}


def test_worse_predictions_are_a_reason_to_train(history, synthetic):
    do(history)
    add(history, synthetic(["recurrent", "unet"], 2, 8, seed=1), factor=math.exp(3.0))
    found = do(history, 1000, dry_run=True)
    assert found.action == "would_train"
    assert "times that at training" in found.reason
    (drift,) = found.drifts
    assert drift.low > 1.25
    assert drift.coverage < 0.5
    assert retrain(history, policy=Policy(1000, 100.0), builtin=False, dry_run=True).action == "skipped"
    trained = do(history, 1000)
    assert trained.version == "2"
    assert connect().get_run(trained.run_id).data.metrics["drift.synthetic.ratio"] == pytest.approx(drift.ratio)


def test_the_previous_champion_comes_back_and_stays(history, ending, synthetic):
    ending(lambda truth: -truth)
    do(history)
    add(history, synthetic(["unet"], 4, 8, seed=1))
    ending(lambda truth: truth)
    assert do(history).action == "promoted"
    assert aliases() == {"champion": "2", "previous": "1"}
    assert roll_back(dry_run=True).action == "would_roll_back"
    assert aliases() == {"champion": "2", "previous": "1"}
    back = roll_back()
    assert (back.action, back.champion, str(back)) == ("rolled_back", "1", "rolled back: champion 2 to champion 1")
    assert aliases() == {"champion": "1"}
    assert do(history).action == "skipped"  # what was rolled back is not trained anew from the same measurements


def test_nothing_to_roll_back(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="no champion to roll back"):
        roll_back()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/none.db")
    with pytest.raises(UsageError, match="nothing was ever trained"):
        roll_back()


def test_a_champion_of_another_schema_is_said_and_replaced(history, ending):
    ending(lambda truth: truth)
    do(history)
    version = connect().get_model_version(MODEL, "1")
    path = costmodel.Path(version.source.removeprefix("file://")) / "model.json"
    path.write_text(path.read_text().replace(f'"schema": {SCHEMA}', '"schema": 0'))
    found = do(history)
    assert found.action == "promoted"
    assert "champion 1 cannot be used any more (the cost model in" in found.reason
    assert f"has schema 0, this version reads schema {SCHEMA}" in found.reason


def test_only_one_at_a_time(history):
    with History(history) as opened, opened.alone("retrain"):
        with pytest.raises(Busy, match="another retrain"):
            do(history)
        assert do(history, dry_run=True).action == "would_train"


def test_a_failure_leaves_the_champion(history, ending, synthetic, monkeypatch):
    ending(lambda truth: truth)
    do(history)
    add(history, synthetic(["unet"], 4, 8, seed=1))

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "train_ensemble", fail)
    with pytest.raises(KeyboardInterrupt):
        do(history)
    assert aliases() == {"champion": "1"}
    experiment = connect().get_experiment_by_name("routecast")
    states = [item.info.status for item in connect().search_runs([experiment.experiment_id])]
    assert sorted(states) == ["FAILED", "FINISHED"]


def test_a_history_that_was_named_must_exist(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"no such history: .*missing\.db"):
        do(tmp_path / "missing.db")
    monkeypatch.setenv("ROUTECAST_HISTORY", str(tmp_path / "own.db"))
    found = retrain()
    assert (found.action, found.new) == ("skipped", 0)
    assert not (tmp_path / "own.db").exists()


@pytest.mark.parametrize(("values", "message"), [((0, 1.25), "at least 1 new route"), ((1, 0.0), "must be above 0"),
                                                 ((1, math.nan), "must be above 0")])  # fmt: skip
def test_policies_are_checked(values, message):
    with pytest.raises(UsageError, match=message):
        Policy(*values)
