"""Runs in a real store of MLflow."""

from __future__ import annotations

import signal
import subprocess
import sys

from mlflow import MlflowClient

from routecast.training.tracking import Tracker

KILLED = """
import os, signal
from routecast.training.tracking import Tracker

Tracker()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_run_of_a_killed_process_is_ended_by_the_next(store) -> None:  # type: ignore[no-untyped-def]
    client = MlflowClient()
    with Tracker() as living:
        assert subprocess.run([sys.executable, "-c", KILLED]).returncode == -signal.SIGKILL
        experiment = client.get_run(living.run_id).info.experiment_id
        (killed,) = {run.info.run_id for run in client.search_runs([experiment])} - {living.run_id}
        assert client.get_run(killed).info.status == "RUNNING"
        with Tracker() as later:
            statuses = {run.info.run_id: run.info.status for run in client.search_runs([experiment])}
    assert statuses == {killed: "KILLED", living.run_id: "RUNNING", later.run_id: "RUNNING"}
    assert client.get_run(living.run_id).info.status == "FINISHED"
