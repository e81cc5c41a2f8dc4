from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from routecast import costmodel
from routecast.costmodel.network import NetworkConfig
from routecast.costmodel.storage import SCHEMA
from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.history import History
from routecast.training import (
    TrainConfig,
    TrainObserver,
    find_cost_model,
    load_champion,
    run,
    tracking_uri,
    train,
    train_ensemble,
)
from routecast.training.tracking import MODEL

SMALL = TrainConfig(members=2, epochs=2, network=NetworkConfig(hidden=16, text=8, layers=1, heads=2, pair=8))


@pytest.fixture
def records(synthetic):
    return synthetic(["cnn", "transformer", "mixer"], 1, 8)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A user's folder of its own, and a package that ships no weights."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(run, "BUILTIN", tmp_path / "nothing")
    monkeypatch.setattr(costmodel, "BUILTIN", tmp_path / "nothing")
    return tmp_path


@pytest.fixture
def made_store(empty_store, home):
    """The user's own MLflow store, without runs: making one takes seconds."""
    folder = home / ".local/share/routecast"
    folder.mkdir(parents=True)
    shutil.copy(empty_store, folder / "mlflow.db")


@pytest.fixture
def predict(records, monkeypatch):
    """Makes the next training run end with given out-of-fold predictions, as a function of the truth."""
    real = train_ensemble(records, SMALL)

    def set_predictions(of_truth):
        rows = replace(real.out_of_fold.routes, predicted=of_truth(real.out_of_fold.routes.log_ratio))
        result = replace(real, out_of_fold=replace(real.out_of_fold, routes=rows))
        monkeypatch.setattr(run, "train_ensemble", lambda *_: result)

    return set_predictions


def client():
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=tracking_uri(), registry_uri=tracking_uri())


def champion_version() -> str:
    return str(client().get_model_version_by_alias(MODEL, "champion").version)


def test_a_first_run_is_recorded_registered_and_promoted(records, home, capsys):
    assert load_champion() is None
    assert not (home / ".local").exists()  # looking for a champion makes no store
    outcome = train(records, config=SMALL, builtin=False)
    assert (outcome.promoted, outcome.previous, outcome.version) == (True, None, "1")
    assert outcome.reason == "promoted: there was no champion"
    assert tracking_uri() == f"sqlite:///{home}/.local/share/routecast/mlflow.db"

    found = client().get_run(outcome.run_id)
    assert found.info.status == "FINISHED"
    assert found.data.params["epochs"] == "2"
    assert found.data.params["network.hidden"] == "16"
    assert found.data.tags["history"] == records.digest()
    logged = found.data.metrics["heldout.default_median_ape"]
    assert logged == pytest.approx(outcome.metrics["default_median_ape"])
    assert {"family.cnn.spearman", "baseline.popularity.spearman"} <= set(found.data.metrics)
    assert [point.step for point in client().get_metric_history(outcome.run_id, "loss.ratio")] == [0, 1]
    names = {item.path for item in client().list_artifacts(outcome.run_id, "model")}
    assert {f"model/{name}" for name in ("weights.safetensors", "model.json", "out_of_fold.parquet")} <= names
    assert len(client().list_artifacts(outcome.run_id, "figures")) == 3
    version = client().get_model_version(MODEL, "1")
    assert (version.tags["schema"], version.tags["history"]) == (str(SCHEMA), records.digest())

    assert load_champion() == outcome.model_path
    loaded = find_cost_model()
    assert loaded is not None
    assert loaded.training["digest"] == records.digest()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "INFO" not in printed.err


@pytest.mark.usefixtures("made_store")
def test_the_alias_moves_only_to_the_better(records, predict):
    predict(lambda truth: np.cos(50 * truth))
    first = train(records, config=SMALL, builtin=False)
    predict(lambda truth: -truth)
    worse = train(records, config=SMALL, builtin=False)
    assert (first.promoted, worse.promoted, worse.previous, worse.version) == (True, False, "1", "2")
    assert "0.0000 of the pairs ordered rightly" in worse.reason
    assert champion_version() == "1"
    predict(lambda truth: truth)
    better = train(records, config=SMALL, builtin=False)
    assert (better.promoted, better.previous) == (True, "1")
    assert "1.0000 of the pairs ordered rightly" in better.reason
    assert champion_version() == "3"
    equal = train(records, config=SMALL, builtin=False)
    assert not equal.promoted
    assert champion_version() == "3"


@pytest.mark.usefixtures("made_store")
def test_the_shipped_weights_have_to_be_beaten_when_there_is_no_champion(records, predict, home, monkeypatch):
    predict(lambda truth: truth)
    shipped = home / "shipped"
    train(records, config=SMALL, builtin=False, track=False, output=shipped)
    monkeypatch.setattr(run, "BUILTIN", shipped)
    monkeypatch.setattr(costmodel, "BUILTIN", shipped)
    predict(lambda truth: -truth)
    outcome = train(records, config=SMALL, builtin=False)
    assert (outcome.promoted, outcome.previous) == (False, "shipped")
    assert load_champion() is None
    assert find_cost_model() is not None


@pytest.mark.usefixtures("made_store")
def test_a_champion_of_another_schema_is_replaced(records, predict):
    predict(lambda truth: truth)
    first = train(records, config=SMALL, builtin=False)
    path = first.model_path / "model.json"
    path.write_text(path.read_text().replace(f'"schema": {SCHEMA}', '"schema": 0'))
    with pytest.raises(UsageError, match="has schema 0"):
        find_cost_model()
    second = train(records, config=SMALL, builtin=False)
    assert second.promoted
    assert "cannot be used any more" in second.reason


@pytest.mark.usefixtures("made_store")
def test_without_a_family_held_out_no_champion_is_beaten(records, predict):
    predict(lambda truth: -truth)
    train(records, config=SMALL, builtin=False)
    predict(lambda truth: np.full_like(truth, np.nan))
    outcome = train(records, config=SMALL, builtin=False)
    assert not outcome.promoted
    assert "no family was held out" in outcome.reason


def test_the_store_of_the_environment_is_used(records, predict, home, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/team/mlflow.db")
    predict(lambda truth: truth)
    outcome = train(records, config=SMALL, builtin=False)
    assert (home / "team/mlflow.db").exists()
    assert (home / "team/mlartifacts") in outcome.model_path.parents
    assert not (home / ".local").exists()


def test_without_tracking_only_the_folder_is_written(records, predict, home):
    predict(lambda truth: truth)
    outcome = train(records, config=SMALL, builtin=False, track=False, output=home / "model")
    assert (outcome.run_id, outcome.promoted, outcome.model_path) == ("", False, home / "model")
    assert find_cost_model(home / "model") is not None
    assert not (home / ".local").exists()
    with pytest.raises(UsageError, match="needs a folder"):
        train(records, config=SMALL, builtin=False, track=False)


def test_a_history_is_read_from_its_path(records, home):
    with History(home / "history.db") as history:
        history.import_records(records)
    outcome = train(home / "history.db", config=SMALL, builtin=False, track=False, output=home / "model")
    assert outcome.evaluation.digest == records.digest()


@pytest.mark.usefixtures("made_store")
def test_a_failing_run_is_marked_so(records, monkeypatch):
    def fail(*_):
        raise UsageError("nothing to train on")

    monkeypatch.setattr(run, "train_ensemble", fail)
    with pytest.raises(UsageError, match="nothing to train on"):
        train(records, config=SMALL, builtin=False)
    experiment = client().get_experiment_by_name("routecast")
    assert [item.info.status for item in client().search_runs([experiment.experiment_id])] == ["FAILED"]


def test_a_store_that_is_no_database_is_one_clear_line(records, home, monkeypatch):
    (home / "broken.db").write_bytes(b"this is no database, it only sits where one should be" * 50)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/broken.db")
    with pytest.raises(RoutecastError, match=r"the MLflow store .*broken.db failed: .*MLFLOW_TRACKING_URI"):
        load_champion()
    with pytest.raises(sqlite3.DatabaseError):
        sqlite3.connect(home / "broken.db").execute("select 1 from sqlite_master")


@pytest.mark.usefixtures("made_store")
def test_an_observer_is_told(records, home):
    seen = []

    class Watch(TrainObserver):
        def started(self, members, epochs, examples):
            seen.append(("started", members, epochs))

        def epoch(self, member, epoch, losses):
            seen.append(("epoch", member, epoch))

        def finished(self, result):
            seen.append(("finished",))

    train(records, config=SMALL, builtin=False, observer=Watch())
    epochs = [("epoch", member, epoch) for member in range(2) for epoch in range(2)]
    assert seen == [("started", 2, 2), *epochs, ("finished",)]


def test_the_package_imports_without_torch_or_mlflow():
    code = "import sys, routecast.training; print({'torch', 'mlflow', 'sklearn'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
