"""Networks of linear layers alone."""

from __future__ import annotations

from torch import nn


def mlp() -> nn.Module:
    """784 numbers to ten; for what serving costs beside it, and of no catalogue."""
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def wide_mlp() -> nn.Module:
    """Three layers 4096 wide: 46 M parameters, every one of them used once."""
    return nn.Sequential(
        nn.Linear(2048, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
        nn.Linear(4096, 1000),
    )  # fmt: skip
