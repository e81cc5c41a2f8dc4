"""A process that has imported the backend once and forks a child per job.

Run as ``python -m routecast.tuner.measure.zygote MODULE...``: it imports the modules, then reads JSON lines
``{"id": 1, "job": "/path/job.json"}`` from its standard input and answers on its standard output with
``{"id": 1, "pid": 123}`` when a child has been forked and ``{"id": 1, "exit": 0}`` when it has ended (minus the
signal's number when one ended it). A fork spares each child a new interpreter with
its imports, and is as isolated. Children die with the zygote, and the zygote with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import selectors
import signal
import sys
import traceback
from pathlib import Path

PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def main(modules: list[str]) -> None:
    """Serves jobs until standard input closes."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer, and it ends this process
    for module in modules:
        importlib.import_module(module)
    importlib.import_module("routecast.tuner.measure.worker")
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        selector.register(wake_read, selectors.EVENT_READ)
        serve(selector, wake_read)


def serve(selector: selectors.BaseSelector, wake_read: int) -> None:
    """Forks for each line on standard input and reports each child that ends."""
    running: dict[int, int] = {}
    pending = b""
    _say({"ready": True})
    while True:
        for key, _ in selector.select():
            received = os.read(key.fd, 65536)
            if key.fd == wake_read:
                continue
            if not received:
                return
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                request = json.loads(line)
                pid = fork_job(Path(request["job"]))
                running[pid] = request["id"]
                _say({"id": request["id"], "pid": pid})
        reap(running)


def reap(running: dict[int, int]) -> None:
    """Reports the children that have ended."""
    for pid in list(running):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            _say({"id": running.pop(pid), "exit": os.waitstatus_to_exitcode(status)})


def fork_job(job: Path) -> int:
    """Forks a child that does one job and exits; returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()  # one signal then reaches whatever the child itself starts
        die_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(job.parent / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        with contextlib.suppress(OSError):  # when memory runs out, the child is what should go
            Path("/proc/self/oom_score_adj").write_text("1000")
        from routecast.tuner.measure.worker import run_job

        run_job(job)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
