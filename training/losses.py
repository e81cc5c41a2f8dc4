"""What training minimises: errors in order and size of log ratios, in accuracy, in failures and in times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from routecast.costmodel.network import Encoding, Scores
from routecast.costmodel.repeats import LOSS_UNIT

TEMPERATURE = 0.03
"""Difference of log ratios that counts as clearly ordered."""
_RATIO_KNEE = 0.1


@dataclass(frozen=True)
class Targets:
    """The truth for R routes of G graphs with N nodes in all; NaN where it was not measured.

    Attributes:
        log_ratio: shape (R,).
        noise: standard deviation of ``log_ratio``, shape (R,).
        log_loss: accuracy loss (``repeats.log_loss``), shape (R,).
        broken: share of the measurements that gave no outputs, shape (R,).
        build: ln of the build time in seconds, shape (R,).
        default: ln of the default latency in ms, shape (G,).
        local_shares: each node's share of its graph's local time, shape (N,).
        local_sum: ln of the sum of local times in ms, shape (G,).
        gap: ln(end-to-end latency / sum of local times), shape (G,).
    """

    log_ratio: Tensor
    noise: Tensor
    log_loss: Tensor
    broken: Tensor
    build: Tensor
    default: Tensor
    local_shares: Tensor
    local_sum: Tensor
    gap: Tensor


def losses(encoding: Encoding, scores: Scores, owner: Tensor, targets: Targets) -> Mapping[str, Tensor]:
    """Every loss by name, each a scalar.

    Args:
        encoding: the G graphs.
        scores: of the R routes.
        owner: the graph of each route, shape (R,).
        targets: the truth.
    """
    return {
        "rank": ranking_loss(scores.log_ratio, targets.log_ratio, targets.noise, owner),
        "ratio": ratio_loss(scores.log_ratio, targets.log_ratio, targets.noise),
        "loss": huber(scores.log_loss / LOSS_UNIT, targets.log_loss / LOSS_UNIT),
        "broken": broken_loss(scores.broken, targets.broken),
        "build": huber(scores.build, targets.build),
        "default": huber(encoding.default, targets.default),
        "local": local_loss(encoding, targets.local_shares),
        "local_sum": huber(encoding.local_sum, targets.local_sum),
        "gap": huber(encoding.gap, targets.gap),
    }


def ranking_loss(predicted: Tensor, actual: Tensor, noise: Tensor, owner: Tensor) -> Tensor:
    """Pairwise logistic loss within each graph (RankNet; Burges et al., 2005).

    A pair counts as much as its true difference d exceeds its noise n: relu(|d| - n) / (|d| + temperature).
    The default route, whose log ratio is 0 by definition, takes part.

    Args:
        predicted: log ratios, shape (R,).
        actual: measured log ratios, NaN for routes that take no part, shape (R,).
        noise: their standard deviations, shape (R,).
        owner: the graph of each route, shape (R,).
    """
    known = ~torch.isnan(actual)
    graphs = torch.unique(owner[known])
    zeros = predicted.new_zeros(len(graphs))
    guess, truth = torch.cat([predicted[known], zeros]), torch.cat([actual[known], zeros])
    spread, group = torch.cat([noise[known], zeros]).square(), torch.cat([owner[known], graphs])
    first, second = torch.nonzero((group[:, None] == group).triu(1), as_tuple=True)
    difference = truth[first] - truth[second]
    size = difference.abs()
    weight = functional.relu(size - (spread[first] + spread[second]).sqrt()) / (size + TEMPERATURE)
    margin = difference.sign() * (guess[first] - guess[second]) / TEMPERATURE
    return (weight * functional.softplus(-margin)).sum() / weight.sum().clamp(min=1e-6)


def ratio_loss(predicted: Tensor, actual: Tensor, noise: Tensor) -> Tensor:
    """Huber loss of log ratios in units of its knee, weighted by how exact each is; shapes (R,)."""
    known = ~torch.isnan(actual)
    weight = 1 / (1 + (noise[known] / TEMPERATURE).square())
    error = functional.huber_loss(predicted[known], actual[known], delta=_RATIO_KNEE, reduction="none")
    return (weight * error).sum() / (_RATIO_KNEE * weight.sum().clamp(min=1e-6))


def broken_loss(logit: Tensor, broken: Tensor) -> Tensor:
    """Binary cross-entropy; shapes (R,)."""
    known = ~torch.isnan(broken)
    if not known.any():
        return logit.sum() * 0.0
    return functional.binary_cross_entropy_with_logits(logit[known], broken[known])


def huber(predicted: Tensor, actual: Tensor) -> Tensor:
    """Huber loss over what is not NaN; any shape."""
    known = ~torch.isnan(actual)
    if not known.any():
        return predicted.sum() * 0.0
    return functional.huber_loss(predicted[known], actual[known])


def local_loss(encoding: Encoding, shares: Tensor) -> Tensor:
    """Kullback-Leibler divergence from measured to predicted shares of local time, mean over profiled graphs.

    Shares compare all nodes at once, those that were fused away (share 0) included, which a loss on the
    logarithm of each node's time could not.

    Args:
        encoding: the G graphs.
        shares: measured share of each node, NaN throughout a graph without profile, shape (N,).
    """
    known = ~torch.isnan(shares)
    if not known.any():
        return encoding.local.sum() * 0.0
    share, owner = shares[known], encoding.owner[known]
    predicted = encoding.local[known] - encoding.local_sum[owner]
    divergence = torch.special.xlogy(share, share) - share * predicted
    mean: Tensor = divergence.sum() / len(torch.unique(owner))
    return mean
