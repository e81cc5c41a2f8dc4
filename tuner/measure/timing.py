"""Timing a route beside the default route: interleaved blocks, medians, a bootstrap interval on the paired ratio."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from routecast.tuner.backends.base import Executable

RESAMPLES = 1000


@dataclass(frozen=True)
class TimingConfig:
    """How long and how finely to time.

    Attributes:
        block_ms: least length of one block of back-to-back inferences, in ms.
        min_blocks, max_blocks: least and greatest number of paired blocks.
        seconds: no new pair of blocks is begun after this time, once ``min_blocks`` are done.
        half_width: stop when the interval of the log ratio is narrower than this on each side.
        lost: stop when the ratio is surely above this.
    """

    block_ms: float = 15.0
    min_blocks: int = 6
    max_blocks: int = 30
    seconds: float = 1.2
    half_width: float = 0.004
    lost: float = 1.15


@dataclass(frozen=True)
class Timing:
    """Paired block medians in ms, and the ratio they give."""

    blocks_ms: tuple[float, ...]
    default_blocks_ms: tuple[float, ...]
    ratio: float
    ratio_low: float
    ratio_high: float


def paired_ratio(
    blocks_ms: npt.ArrayLike, default_blocks_ms: npt.ArrayLike, seed: int = 0
) -> tuple[float, float, float]:
    """Median of the paired ratios with its 95 % percentile-bootstrap interval (Efron, 1979).

    Args:
        blocks_ms: block medians of the route, shape (blocks,), in ms.
        default_blocks_ms: those of the default route beside it, shape (blocks,), in ms.
        seed: of the resampling.

    Returns:
        ratio, low, high; below 1 the route is faster.
    """
    ratios = np.log(np.asarray(blocks_ms, dtype=float)) - np.log(np.asarray(default_blocks_ms, dtype=float))
    rng = np.random.default_rng(seed)
    medians = np.median(ratios[rng.integers(len(ratios), size=(RESAMPLES, len(ratios)))], axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return math.exp(float(np.median(ratios))), math.exp(float(low)), math.exp(float(high))


@contextlib.contextmanager
def caller_on_first_core() -> Iterator[None]:
    """Keeps the calling thread, and only it, on the first core that this process may use.

    ONNX Runtime pins its threads to the other cores and leaves the caller where it is. After a pause the kernel may
    wake the caller on a core where one of those threads spins; the two then take turns, 4 ms each, for seconds. Seen
    on two cores as a second mode at 2 to 4 times the latency. Threads made inside this context inherit the pinning.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def time_beside(candidate: Executable, default: Executable, config: TimingConfig, seed: int = 0) -> Timing:
    """Times ``candidate`` and ``default``, both prepared, in pairs of blocks in random order."""
    rng = np.random.default_rng(seed)
    repeats = {
        executable: max(1, math.ceil(config.block_ms / max(_warm(executable, config.block_ms), 1e-6)))
        for executable in (candidate, default)
    }
    blocks: dict[Executable, list[float]] = {candidate: [], default: []}
    last: Executable | None = None
    end = time.monotonic() + config.seconds
    while len(blocks[candidate]) < config.max_blocks:
        done = len(blocks[candidate])
        if done >= config.min_blocks and (time.monotonic() > end or (done % 2 == 0 and _settled(blocks, config))):
            break
        pair = (candidate, default) if rng.random() < 0.5 else (default, candidate)
        for executable in pair:
            if executable is not last:
                _settle()
                executable.time(1)  # brings its weights back to the caches and wakes its threads
            blocks[executable].append(executable.time(repeats[executable]))
            last = executable
    return Timing(
        tuple(blocks[candidate]), tuple(blocks[default]), *paired_ratio(blocks[candidate], blocks[default], seed)
    )


def _settle(limit_s: float = 0.25) -> None:
    """Waits until this process uses no CPU.

    ONNX Runtime's threads spin for tens of ms after an inference (42 ms seen with its defaults); a session timed in
    that time would share its cores with the threads of the other. The pause must outlast the kernel's tick (4 ms is
    common), since the CPU time of a running thread is only brought up to date there.
    """
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        before = time.process_time()
        time.sleep(0.01)
        if time.process_time() - before < 0.001:
            return


def _warm(executable: Executable, block_ms: float) -> float:
    """Runs for about one block and returns the last latency in ms."""
    latency = executable.time(1)
    end = time.monotonic() + 2 * block_ms / 1e3
    while time.monotonic() < end:
        latency = executable.time(1)
    return latency


def _settled(blocks: dict[Executable, list[float]], config: TimingConfig) -> bool:
    """Whether more blocks would not change the conclusion."""
    candidate, default = blocks.values()
    _, low, high = paired_ratio(candidate, default)
    return math.log(high / low) / 2 < config.half_width or low > config.lost
