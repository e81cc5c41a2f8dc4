import numpy as np
import pytest

from routecast.tuner.measure.timing import TimingConfig, paired_ratio, time_beside


class Clockwork:
    """An executable whose latencies are drawn, not measured."""

    def __init__(self, ms, noise, rng):
        self.ms, self.noise, self.rng = ms, noise, rng
        self.blocks = 0

    def time(self, repeats):
        self.blocks += 1
        return self.ms * float(np.exp(self.noise * self.rng.standard_normal()))


def test_ratio_is_paired_and_its_interval_holds_the_truth():
    rng = np.random.default_rng(0)
    drift = np.exp(0.3 * rng.standard_normal(40))  # both slow down together: the ratio must not care
    default = drift * np.exp(0.01 * rng.standard_normal(40))
    candidate = 0.9 * drift * np.exp(0.01 * rng.standard_normal(40))
    ratio, low, high = paired_ratio(candidate, default)
    assert low < 0.9 < high
    assert ratio == pytest.approx(0.9, rel=0.01)
    assert high - low < 0.03


def test_interval_covers_at_its_nominal_rate():
    rng = np.random.default_rng(1)
    hits = 0
    for seed in range(200):
        blocks = np.exp(0.02 * rng.standard_normal((2, 20)))
        _, low, high = paired_ratio(blocks[0], blocks[1], seed)
        hits += low <= 1.0 <= high
    assert 180 <= hits <= 200


def test_a_lost_route_is_given_up_early_and_a_close_one_is_not():
    config = TimingConfig(block_ms=0.1, min_blocks=6, max_blocks=30, seconds=5)
    rng = np.random.default_rng(2)
    lost = time_beside(Clockwork(2.0, 0.01, rng), Clockwork(1.0, 0.01, rng), config)
    close = time_beside(Clockwork(0.99, 0.05, rng), Clockwork(1.0, 0.05, rng), config)
    assert len(lost.blocks_ms) == 6
    assert lost.ratio == pytest.approx(2.0, rel=0.05)
    assert len(close.blocks_ms) > 20
    assert len(close.blocks_ms) == len(close.default_blocks_ms)
