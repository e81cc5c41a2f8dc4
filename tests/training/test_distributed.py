from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from routecast.costmodel import load_cost_model
from routecast.costmodel.network import NetworkConfig, RouteNetwork
from routecast.costmodel.storage import DESCRIPTION
from routecast.datasets.errors import RoutecastError, UsageError
from routecast.datasets.records import Records
from routecast.training import TrainConfig, TrainObserver, run, train
from routecast.training.distributed import train_members
from routecast.training.member import Team
from routecast.training.trainer import example_store

Generator = Callable[..., Records]
SMALL = NetworkConfig(hidden=16, text=8, layers=1, heads=2, pair=8, dropout=0.0)
CONFIG = TrainConfig(members=1, epochs=4, batch=2, network=SMALL)


class Losses(TrainObserver):
    """Keeps the losses of every epoch."""

    def __init__(self) -> None:
        self.seen: list[Mapping[str, float]] = []

    def epoch(self, member: int, epoch: int, losses: Mapping[str, float]) -> None:
        self.seen.append(losses)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(records: Records, config: TrainConfig, processes: int) -> tuple[list[RouteNetwork], Losses]:
    losses = Losses()
    with example_store(records) as store:
        return train_members(store, [frozenset()], config, losses, processes), losses


def vector(network: RouteNetwork) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def test_two_processes_are_one_with_twice_the_batch(synthetic: Generator) -> None:
    """But for the weights of pairs and rows, which each process divides by its own sum."""
    records = synthetic(["cnn", "transformer", "mixer", "unet"], models=2, routes=10)
    (two,), of_two = trained(records, CONFIG, 2)
    (one,), of_one = trained(records, replace(CONFIG, batch=4), 1)
    (other,), of_other = trained(records, replace(CONFIG, batch=4, seed=1), 1)
    assert len(of_two.seen) == len(of_one.seen) == 4
    for left, right in zip(of_two.seen, of_one.seen, strict=True):
        assert left == pytest.approx(right, rel=0.05, abs=0.02)
    assert of_other.seen[-1] != pytest.approx(of_one.seen[-1], rel=0.05, abs=0.02)
    assert torch.norm(vector(two) - vector(one)) < 0.2 * torch.norm(vector(other) - vector(one))


def test_shares_are_of_one_length_and_hold_everything() -> None:
    for count, size in ((7, 2), (1, 3), (8, 4), (5, 1)):
        shares = [Team(rank, size).share(np.arange(count)) for rank in range(size)]
        assert {len(share) for share in shares} == {-(-count // size)}
        assert set(np.concatenate(shares)) == set(range(count))


@pytest.mark.parametrize(
    ("processes", "device", "message"),
    [
        (0, "cpu", "at least 1 process, got 0"),
        (1, "tpu", "cpu or cuda, got 'tpu'"),
        (999, "cuda", "needs as many GPUs, torch sees"),
    ],
)
def test_what_cannot_be_is_said(synthetic: Generator, processes: int, device: str, message: str) -> None:
    with example_store(synthetic(["cnn"], 1, 2)) as store, pytest.raises(UsageError, match=message):
        train_members(store, [frozenset()], CONFIG, TrainObserver(), processes, device)


def workers(process: psutil.Process) -> list[psutil.Process]:
    return [
        child
        for child in process.children(recursive=True)
        if "routecast.training.distributed" in child.cmdline() and "torch.distributed.run" not in child.cmdline()
    ]


def test_a_killed_process_ends_the_training_with_one_line(synthetic: Generator, tmp_path: Path) -> None:
    output = tmp_path / "model"

    class Killer(TrainObserver):
        def epoch(self, member: int, epoch: int, losses: Mapping[str, float]) -> None:
            for worker in workers(psutil.Process())[-1:]:
                worker.kill()

    with pytest.raises(
        RoutecastError, match="training in 2 processes failed: one of them was ended by signal 9"
    ) as caught:
        train(
            synthetic(["cnn", "mixer"], 1, 4), config=replace(CONFIG, members=2, epochs=2000), builtin=False,
            track=False, output=output, observer=Killer(), processes=2,
        )  # fmt: skip
    assert "\n" not in str(caught.value)
    assert not output.exists()
    assert not workers(psutil.Process())


def test_a_model_is_saved_whole_or_not_at_all(
    synthetic: Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, output = synthetic(["cnn", "mixer"], 1, 4), tmp_path / "model"
    options = {"config": replace(CONFIG, members=2), "builtin": False, "track": False, "output": output}
    train(records, **options)
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    assert set(before) > {"model.json", "weights.safetensors", "out_of_fold.parquet", "evaluation.json"}

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run, "save_out_of_fold", fail)
    with pytest.raises(RoutecastError, match="cannot save the cost model to .*: No space left on device"):
        train(records, **{**options, "config": replace(CONFIG, members=2, seed=1)})
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before
    monkeypatch.undo()

    real = Path.replace

    def killed(path: Path, target: Path) -> Path:
        if path.name == "out_of_fold.parquet":
            raise KeyboardInterrupt
        return real(path, target)

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        train(records, **{**options, "config": replace(CONFIG, members=2, seed=1)})
    assert not (output / DESCRIPTION).exists()
    with pytest.raises(UsageError, match="no cost model in"):
        load_cost_model(output)


@pytest.mark.slow
def test_the_command_trains_in_two_processes_and_a_kill_leaves_no_model(synthetic: Generator, tmp_path: Path) -> None:
    synthetic(["cnn", "mixer"], 1, 4).write_parquet(tmp_path / "history")
    environment = {**os.environ, "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable, "-m", "routecast.tuner.cli", "train", str(tmp_path / "history"), "--no-builtin", "--no-track",
        "--members", "2", "--processes", "2", "--output", str(tmp_path / "model"), "--epochs",
    ]  # fmt: skip
    done = subprocess.run([*command, "2", "--json"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["evaluation"]["models"] == 2
    assert load_cost_model(tmp_path / "model").training["processes"] == 2
    for path in (tmp_path / "model").iterdir():
        path.unlink()

    training = subprocess.Popen([*command, "100000"], env=environment, stderr=subprocess.PIPE, text=True)
    assert training.stderr is not None
    lines = iter(training.stderr)
    threading.Timer(120, training.kill).start()
    assert next(line for line in lines if line.startswith("training 2 networks"))
    process = psutil.Process(training.pid)
    while len(found := workers(process)) < 2:
        time.sleep(0.1)
    training.send_signal(signal.SIGKILL)
    training.wait()
    psutil.wait_procs(found, timeout=30)
    assert not any(worker.is_running() for worker in found)
    assert not list((tmp_path / "model").iterdir())
