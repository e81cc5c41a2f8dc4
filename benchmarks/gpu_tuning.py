"""Tunes networks that the H200 history does not hold, on a GPU, against trtexec's ``fast`` order at as many builds.

    python benchmarks/gpu_tuning.py export FOLDER &
    ROUTECAST_RTX_COMPILER_KNOBS=1 python benchmarks/gpu_tuning.py run FOLDER --gpus 0 1 --minutes 10
    python benchmarks/gpu_report.py FOLDER/rows.jsonl

Every search is a whole ``tune`` of k = 8 builds on the same GPU in the same run. Its two fastest routes are rebuilt
three times and timed beside the default, and only one that is surely faster every time counts; else the default does.

- ``routecast``: the cost model chooses, of the whole route space (graph form, precision, builder, runtime, compiler).
- ``fast``: the same space in the order of trtexec's ``--tuningSearch=fast``: the default with one knob changed, knob by
  knob as ``routecast knobs`` lists them. trtexec itself permutes compiler knobs only, so this gives it levers that it
  lacks; but eight builds go to the first knobs of the list, which are those of the graph's form, then of precision.
- ``compiler fast``: what trtexec itself would do with the file: one compiler knob after the other.
- ``fp16, then fast``: what somebody does who converts the network to fp16 first: that is the first build, the other
  seven are fp16 with one compiler knob changed.
- ``random``: random routes of the whole space.

Beside them: 20 A/A repeats; tunes repeated as they were with a history of their own, with that of the tune before, and
with other seeds, and then their winners in a duel, rebuilt in turns and timed in one go; one tune killed and resumed;
and resnet50 in fp32, which was seen to come out wrong. Tunes run side by side, as many as ``--processes`` on each GPU,
since a tune alone leaves the GPU idle while it builds; the GPU's lock keeps timings alone. So the minutes are those of
a busy machine. Parts are begun in the order of what matters most; what the time does not suffice for is not in the
result, and said.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from gpu_tasks import Setting, Task, add_row, do, export, task_command

from routecast.costmodel import BUILTIN

MAIN = (
    "phi_6_512_2048_8_b4_128_o18",
    "pit_s_224_b8_o18",
    "nextvit_small_b8_o18",
    "coatnet_nano_rw_224_b4_o18",
    "nudenet_b1_s320",
    "conformer_w256_b8_t256_gpu",
    "edgenext_small_b8_o17",
    "ghostnet_100_b8_o17",
    "ocr_recogniser_b2_w224",
    "hrnet_w18_small_b4_o17",
)
# Tuned again, as they were and with other seeds: networks that have something to gain.
REPEATED = ("phi_6_512_2048_8_b4_128_o18", "nudenet_b1_s320", "pit_s_224_b8_o18")
CHAINED = 3
"""Tunes with one history; the repeats with a history of their own count on from there."""
TIMES, SEEDS = (4,), (1, 2)
OTHER_BATCHES = ("ghostnet_100_b32_o17", "coatnet_nano_rw_224_b16_o17")
TRAPPED = ("resnet50_b1_o17", "resnet50_b8_o18")
CONTROLS = 20
# A tune that is killed and resumed takes longer than the others, so it gets fewer.
KILLED_BUILDS = 4
# Measurements of each kind of part, to share parts out among GPUs.
_WEIGHTS = {"tune": 16, "chain": 16 * CHAINED, "duel": 9, "kill": 12, "trap": 9, "control": 16}


def plan(main: Sequence[str] = MAIN, others: Sequence[str] = OTHER_BATCHES, chained: int = CHAINED) -> list[Task]:
    """All parts, what matters most first."""
    again = [name for name in main if name in REPEATED]
    tasks = [Task("chain", name, repeats=chained) for name in again]
    tasks += [Task("tune", name) for name in main if name not in again]
    tasks += [Task("tune", name, time=time) for time in TIMES for name in again]
    tasks += [Task("tune", name, seed=seed) for seed in SEEDS for name in again]
    tasks += [Task("duel", name) for name in again]
    tasks += [Task("control", name, repeats=math.ceil(CONTROLS / len(main))) for name in main]
    tasks += [Task("tune", name, search) for search in ("fast", "fp16, then fast") for name in main]
    tasks += [Task("tune", name, "random") for name in main]
    tasks += [Task("kill", name, builds=KILLED_BUILDS) for name in main[:1]]
    tasks += [Task("trap", name) for name in TRAPPED]
    tasks += [Task("tune", name, "compiler fast") for name in main]
    searches = ("routecast", "fp16, then fast", "fast")
    return tasks + [Task("tune", name, search) for name in others for search in searches]


def lanes(tasks: Sequence[Task], count: int) -> list[list[Task]]:
    """Shares tasks out among GPUs, all of one network to the same, each in the order given."""
    work = Counter[str]()
    for task in tasks:
        work[task.network] += _WEIGHTS[task.kind]
    load, lane_of = [0] * count, {}
    for network, weight in work.most_common():
        lane_of[network] = load.index(min(load))
        load[lane_of[network]] += weight
    shared: defaultdict[int, list[Task]] = defaultdict(list)
    for task in tasks:
        shared[lane_of[task.network]].append(task)
    return [shared[lane] for lane in range(count)]


class Lane:
    """One GPU and its share of the cores, where several tasks run side by side."""

    def __init__(self, gpu: str, cores: Sequence[int], tasks: Sequence[Task], setting: Setting, until: float) -> None:
        self._tasks = iter(tasks)
        self._next = threading.Lock()
        self._ends: defaultdict[str, list[threading.Event]] = defaultdict(list)
        self._cores, self._setting, self._until = cores, setting, until
        self._environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            self._environment.setdefault(name, "2")

    def start(self, processes: int) -> list[threading.Thread]:
        """Starts as many tasks side by side."""
        threads = [threading.Thread(target=self._serve) for _ in range(processes)]
        for thread in threads:
            thread.start()
        return threads

    def _serve(self) -> None:
        while True:
            with self._next:
                task = next(self._tasks, None)
                if task is None:
                    return
                *before, ended = self._begun(task)
            if task.kind == "duel":
                for other in before:
                    other.wait()
            self._do(task)
            ended.set()

    def _begun(self, task: Task) -> list[threading.Event]:
        """The ends of all tasks of a network that were begun so far, the last for this one."""
        self._ends[task.network].append(threading.Event())
        return list(self._ends[task.network])

    def _do(self, task: Task) -> None:
        began = time.time()
        if began > self._until:
            add_row(self._setting, {**asdict(task), "error": "not begun: no time was left"})
            return
        log = self._setting.folder / "logs" / f"{task.name}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [*task_command(task, self._setting), "--cores", ",".join(map(str, self._cores))],
                env=self._environment, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        try:
            code = process.wait(max(1.0, self._until - time.time()))
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            add_row(self._setting, {**asdict(task), "error": "not finished: no time was left"})
        print(f"{time.strftime('%H:%M:%S')} {task.name}: exit {code} after {time.time() - began:.0f} s", flush=True)


def run(options: argparse.Namespace, setting: Setting) -> None:
    """Does all tasks that there is time for."""
    (setting.folder / "logs").mkdir(parents=True, exist_ok=True)
    until = time.time() + 60 * options.minutes
    tasks = _plan(options)
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // len(options.gpus))
    threads = []
    for index, (gpu, mine) in enumerate(zip(options.gpus, lanes(tasks, len(options.gpus)), strict=True)):
        lane = Lane(gpu, cores[index * share : (index + 1) * share], mine, setting, until)
        threads += lane.start(options.processes)
    for thread in threads:
        thread.join()
    print(f"all done {until - time.time():.0f} s before time was up", flush=True)


def _plan(options: argparse.Namespace) -> list[Task]:
    main, others = (options.networks, ()) if options.networks else (MAIN, OTHER_BATCHES)
    return plan(main, others, options.chained)


def export_all(options: argparse.Namespace, setting: Setting) -> None:
    """Exports every network of the plan, in the order of need."""
    folder = setting.folder / "networks"
    names = dict.fromkeys(task.network for task in _plan(options))
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        list(pool.map(partial(export, folder=folder), names))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("export", "run", "task"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("task", nargs="?", help="of ``task``: its JSON")
    parser.add_argument("--networks", nargs="*", help="instead of those held out")
    parser.add_argument("--chained", type=int, default=CHAINED, help="tunes one after the other with one history")
    parser.add_argument("--gpus", nargs="*", default=["0"])
    parser.add_argument("--processes", type=int, default=14, help="side by side on each GPU")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--backend", default="tensorrt-rtx")
    parser.add_argument("--cost-model", default=str(BUILTIN))
    parser.add_argument("--builds", type=int, default=8)
    parser.add_argument("--cores", default="", help="of ``task``: those it may use")
    options = parser.parse_args()
    setting = Setting(options.folder.resolve(), options.backend, options.cost_model, options.builds)
    if options.what == "task":
        if options.cores:
            os.sched_setaffinity(0, {int(core) for core in options.cores.split(",")})
        do(Task(**json.loads(options.task)), setting)
    else:
        {"export": export_all, "run": run}[options.what](options, setting)


if __name__ == "__main__":
    main()
