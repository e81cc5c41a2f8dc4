"""``routecast train``: learn from a history."""

from __future__ import annotations


def train() -> None:
    """Train a cost model from a history."""
