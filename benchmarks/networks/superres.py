"""ESPCN (Shi et al. 2016): 64-32-27 filters of 5, 3 and 3, then pixels from channels, three times as large."""

from __future__ import annotations

from torch import nn


def espcn() -> nn.Module:
    """31 k parameters: one channel of 224x224 becomes three of 672x672."""
    return nn.Sequential(
        nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(),
        nn.Conv2d(32, 27, 3, padding=1), nn.PixelShuffle(3),
    )  # fmt: skip
