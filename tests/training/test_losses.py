from __future__ import annotations

import math

import pytest
import torch

from routecast.costmodel.network import Encoding
from routecast.training.losses import TEMPERATURE, broken_loss, huber, local_loss, ranking_loss, ratio_loss

NAN = float("nan")


def test_ranking_compares_within_a_graph_and_with_the_default_route() -> None:
    owner, noise = torch.tensor([0, 0, 1]), torch.zeros(3)
    actual = torch.tensor([-0.5, 0.5, 5.0])
    right = ranking_loss(actual, actual, noise, owner)
    wrong = ranking_loss(-actual, actual, noise, owner)
    assert right < 1e-3 < wrong
    crossed = torch.tensor([-0.5, 0.5, 0.1])
    assert ranking_loss(crossed, actual, noise, owner) < 0.1


def test_ranking_by_hand() -> None:
    loss = ranking_loss(torch.tensor([0.03]), torch.tensor([0.3]), torch.tensor([0.0]), torch.tensor([0]))
    assert float(loss) == pytest.approx(math.log(1 + math.exp(-0.03 / TEMPERATURE)), rel=1e-5)


def test_ranking_ignores_pairs_within_their_noise_and_unknown_routes() -> None:
    owner = torch.tensor([0, 0, 0])
    predicted = torch.zeros(3, requires_grad=True)
    loss = ranking_loss(predicted, torch.tensor([0.01, NAN, -0.01]), torch.full((3,), 0.05), owner)
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == 0
    assert predicted.grad is not None
    assert not predicted.grad.any()


def test_exact_measurements_weigh_more() -> None:
    predicted, actual = torch.tensor([0.1, 0.0]), torch.tensor([0.0, 0.0])
    exact_error = ratio_loss(predicted, actual, torch.tensor([0.003, 0.3]))
    vague_error = ratio_loss(predicted, actual, torch.tensor([0.3, 0.003]))
    assert exact_error > 10 * vague_error


@pytest.mark.parametrize("loss", [broken_loss, huber])
def test_unknown_targets_are_left_out(loss) -> None:  # type: ignore[no-untyped-def]
    some = loss(torch.tensor([0.5, 9.0]), torch.tensor([1.0, NAN]))
    assert float(some) == pytest.approx(float(loss(torch.tensor([0.5]), torch.tensor([1.0]))))
    predicted = torch.tensor([0.5], requires_grad=True)
    none = loss(predicted, torch.tensor([NAN]))
    none.backward()
    assert float(none.detach()) == 0


def encoded(local: torch.Tensor, owner: torch.Tensor) -> Encoding:
    graphs = int(owner.max()) + 1
    sums = torch.stack([local[owner == index].logsumexp(0) for index in range(graphs)])
    empty = torch.zeros(graphs)
    return Encoding(local, owner, local.exp(), empty, local, sums, empty)


def test_local_loss_is_the_divergence_of_shares() -> None:
    owner = torch.tensor([0, 0, 1, 1])
    local = torch.tensor([0.0, math.log(3.0), 1.0, 5.0])
    assert float(local_loss(encoded(local, owner), torch.tensor([0.25, 0.75, NAN, NAN]))) == pytest.approx(0, abs=1e-6)
    fused = float(local_loss(encoded(local, owner), torch.tensor([0.0, 1.0, NAN, NAN])))
    assert fused == pytest.approx(-math.log(0.75), abs=1e-6)
    assert float(local_loss(encoded(local, owner), torch.full((4,), NAN))) == 0
