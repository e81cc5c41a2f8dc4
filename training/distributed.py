"""Trains the members in this process, or data-parallel in several that torchrun starts on this machine.

The processes share the file of examples. Each takes its own batch per step and their gradients are averaged
(torch.distributed: gloo on CPUs, NCCL on GPUs). The process of rank 0 prints a line per epoch, which the starting
process reads, and writes the weights at the very end; a training run that is interrupted leaves none.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import distributed

from routecast.costmodel.network import RouteNetwork
from routecast.datasets.errors import RoutecastError, UsageError
from routecast.training.config import TrainConfig, TrainObserver
from routecast.training.member import Team, train_member
from routecast.training.store import ExampleStore

DEVICES = ("cpu", "cuda")
_JOB, _WEIGHTS, _ERROR, _STDERR = "job.json", "members.safetensors", "error.txt", "stderr.txt"


def train_members(
    store: ExampleStore,
    folds: Sequence[frozenset[str]],
    config: TrainConfig,
    observer: TrainObserver,
    processes: int = 1,
    device: str = "cpu",
) -> list[RouteNetwork]:
    """Trains every member; member k never sees the families of fold k, counted round.

    Raises:
        UsageError: there are fewer GPUs than processes, or no device of this name.
        RoutecastError: one of several processes failed.
    """
    _check(processes, device)
    if processes == 1:
        return _members(store, folds, config, observer, Team(device=torch.device(device)))
    with tempfile.TemporaryDirectory(prefix="routecast-") as scratch:
        folder = Path(scratch)
        job = {
            "store": str(store.path.absolute()), "folds": [sorted(fold) for fold in folds],
            "config": asdict(config), "device": device,
        }  # fmt: skip
        (folder / _JOB).write_text(json.dumps(job), encoding="utf-8")
        _launch(folder, processes, observer)
        return _loaded(folder, config)


def _check(processes: int, device: str) -> None:
    if processes < 1:
        raise UsageError(f"training needs at least 1 process, got {processes}")
    if device not in DEVICES:
        raise UsageError(f"training runs on {' or '.join(DEVICES)}, got {device!r}")
    if device == "cuda" and torch.cuda.device_count() < processes:
        raise UsageError(
            f"training in {processes} processes needs as many GPUs, torch sees {torch.cuda.device_count()}: "
            "take fewer processes, or the device cpu"
        )


def _members(
    store: ExampleStore, folds: Sequence[frozenset[str]], config: TrainConfig, observer: TrainObserver, team: Team
) -> list[RouteNetwork]:
    return [
        train_member(store, folds[index % len(folds)], config, index, observer, team) for index in range(config.members)
    ]


def _launch(folder: Path, processes: int, observer: TrainObserver) -> None:
    """Runs this module under torchrun, and passes on what the process of rank 0 says."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}",
        "-m", "routecast.training.distributed", str(folder),
    ]  # fmt: skip
    threads = max(1, torch.get_num_threads() // processes)
    # One machine only: its own interface always exists, while its name may not resolve.
    environment = {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo", **os.environ}
    with (folder / _STDERR).open("wb") as errors:
        torchrun = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert torchrun.stdout is not None  # for the type checker
            for line in torchrun.stdout:
                observer.epoch(**json.loads(line))
            status = torchrun.wait()
        finally:
            torchrun.terminate()
            torchrun.wait()
    if status or not (folder / _WEIGHTS).exists():
        raise RoutecastError(f"training in {processes} processes failed: {_reason(folder)}")


def _reason(folder: Path) -> str:
    """Why the processes ended, one line; when one is killed, torchrun terminates the others, which may say so first."""
    killed = re.search(r"Signal \d+ \((?!SIGTERM)\w+\)", (folder / _STDERR).read_text(errors="replace"))
    if killed:
        return f"one of them was ended by {killed.group().replace('Signal', 'signal')}; is there enough memory?"
    said = folder / _ERROR
    return said.read_text(encoding="utf-8") if said.exists() else "torchrun gave no reason"


def _loaded(folder: Path, config: TrainConfig) -> list[RouteNetwork]:
    weights = load_file(folder / _WEIGHTS)
    members = []
    for index in range(config.members):
        network = RouteNetwork(config.network)
        network.load_state_dict({name: weights[f"{index}.{name}"] for name in network.state_dict()})
        members.append(network.eval())
    return members


class _Reporter(TrainObserver):
    """Prints each epoch as a line of JSON."""

    def epoch(self, member: int, epoch: int, losses: Mapping[str, float]) -> None:
        """See ``TrainObserver``."""
        print(json.dumps({"member": member, "epoch": epoch, "losses": losses}), flush=True)


def _work(folder: Path) -> None:
    """One of the processes."""
    job = json.loads((folder / _JOB).read_text(encoding="utf-8"))
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device(job["device"], local) if job["device"] == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    team = Team(distributed.get_rank(), distributed.get_world_size(), device)
    config, folds = TrainConfig.from_json(job["config"]), [frozenset(fold) for fold in job["folds"]]
    with ExampleStore(Path(job["store"])) as store:
        members = _members(store, folds, config, TrainObserver() if team.rank else _Reporter(), team)
    if team.rank == 0:
        weights = {
            f"{k}.{name}": value for k, member in enumerate(members) for name, value in member.state_dict().items()
        }
        save_file(weights, folder / _WEIGHTS)
    distributed.destroy_process_group()


def main() -> None:
    """Works on the job in the folder that the command line names."""
    folder = Path(sys.argv[1])
    try:
        _work(folder)
    except Exception as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        (folder / _ERROR).write_text(f"{type(error).__name__}: {line}", encoding="utf-8")
        raise


if __name__ == "__main__":
    main()
