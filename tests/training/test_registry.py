from __future__ import annotations

import json
import shutil

import pytest

from routecast.costmodel import BUILTIN, load_cost_model
from routecast.datasets.errors import RoutecastError, UsageError
from routecast.training import registry as module
from routecast.training.mlflow_store import connect, without_credentials
from routecast.training.registry import CHAMPION, MODEL, PREVIOUS, Registry, open_registry

pytestmark = pytest.mark.usefixtures("store")


@pytest.fixture
def registry() -> Registry:
    return Registry()


def register(registry: Registry, folder) -> str:
    """Registers a copy of the shipped weights."""
    shutil.copytree(BUILTIN, folder, ignore=shutil.ignore_patterns("__pycache__"))
    client = connect()
    run = client.create_run("0")
    return registry.register(folder.as_uri(), run.info.run_id, {"schema": "1"})


@pytest.fixture
def three(registry, tmp_path) -> list[str]:
    """Three versions, each promoted over the one before."""
    versions = []
    for number in range(3):
        versions.append(register(registry, tmp_path / f"model {number}"))
        before = registry.champion()
        assert registry.promote(versions[-1], before, before and before.version)
    return versions


def aliases() -> dict[str, str]:
    return {name: str(version) for name, version in connect().get_registered_model(MODEL).aliases.items()}


def test_aliases_follow_promotions(registry, three):
    assert aliases() == {CHAMPION: "3", PREVIOUS: "2"}
    champion, latest = registry.champion(), registry.latest()
    assert champion == latest
    assert (champion.version, champion.tags) == ("3", {"schema": "1", "replaced": "2"})
    load_cost_model(champion.folder)


def test_the_latest_need_not_be_the_champion(registry, three, tmp_path):
    assert register(registry, tmp_path / "loser") == "4"
    assert (registry.champion().version, registry.latest().version) == ("3", "4")


def test_going_back_goes_on_to_the_first(registry, three):
    assert registry.roll_back(dry_run=True) == ("3", "2")
    assert aliases() == {CHAMPION: "3", PREVIOUS: "2"}
    assert registry.roll_back() == ("3", "2")
    assert aliases() == {CHAMPION: "2", PREVIOUS: "1"}
    assert "rolled_back" in connect().get_model_version(MODEL, "3").tags
    assert registry.roll_back() == ("2", "1")
    assert aliases() == {CHAMPION: "1"}
    with pytest.raises(UsageError, match=f"champion 1 replaced nothing .* alias {PREVIOUS} of {MODEL}"):
        registry.roll_back()
    assert aliases() == {CHAMPION: "1"}


def test_the_shipped_weights_come_back_by_taking_the_alias_away(registry, tmp_path):
    version = register(registry, tmp_path / "model")
    registry.promote(version, None, "shipped")
    assert registry.roll_back() == ("1", "shipped")
    assert registry.champion() is None
    with pytest.raises(UsageError, match="no champion to roll back"):
        registry.roll_back()


def test_an_interrupted_promotion_leaves_the_champion_and_a_way_back(registry, three, tmp_path, monkeypatch):
    version = register(registry, tmp_path / "new")
    real = Registry._point

    def dies(self, alias, version):
        if alias == CHAMPION:
            raise KeyboardInterrupt
        real(self, alias, version)

    monkeypatch.setattr(Registry, "_point", dies)
    with pytest.raises(KeyboardInterrupt):
        registry.promote(version, registry.champion(), "3")
    monkeypatch.setattr(Registry, "_point", real)
    assert registry.champion().version == "3"
    assert registry.roll_back() == ("3", "2")  # although the alias previous names 3 as well


def test_a_champion_that_somebody_else_promoted_is_not_passed_over(registry, three, tmp_path):
    mine, theirs = register(registry, tmp_path / "mine"), register(registry, tmp_path / "theirs")
    judged_against = registry.champion()
    assert registry.promote(theirs, judged_against, "3")
    assert not registry.promote(mine, judged_against, "3")
    assert aliases() == {CHAMPION: theirs, PREVIOUS: "3"}
    assert registry.promote(mine, registry.champion(), theirs)


def test_what_cannot_be_read_any_more_is_not_put_back(registry, three, tmp_path):
    path = tmp_path / "model 1" / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 0}))
    with pytest.raises(UsageError, match="has schema 0, this version reads schema"):
        registry.roll_back()
    assert aliases() == {CHAMPION: "3", PREVIOUS: "2"}


def test_looking_makes_no_store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/none/mlflow.db")
    assert open_registry() is None
    assert not (tmp_path / "none").exists()


def test_a_store_out_of_reach_is_one_line_without_its_password(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somebody:hunter2@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(RoutecastError, match=r"the MLflow store http://127.0.0.1:9 failed: .*check MLFLOW") as caught:
        open_registry().champion()
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("postgresql://me:secret@host/db failed", "postgresql://host/db failed"),
        ("http://token@host:5000 and http://a:b@other", "http://host:5000 and http://other"),
        ("postgresql://host/db?user=me&password=secret&x=1", "postgresql://host/db?user=me&password=&x=1"),
        ("sqlite:////home/me@work/mlflow.db", "sqlite:////home/me@work/mlflow.db"),
        ("no URL, me@host", "no URL, me@host"),
    ],
)
def test_credentials_are_left_out(text, safe):
    assert without_credentials(text) == safe


def test_the_module_is_imported_without_mlflow():
    assert "mlflow" not in vars(module)
