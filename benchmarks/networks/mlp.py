"""A small network of three layers, for what serving costs beside it; of no catalogue."""

from __future__ import annotations

from torch import nn


def mlp() -> nn.Module:
    """784 numbers to ten."""
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
