"""The generator of DCGAN (Radford et al. 2015): a picture of 64 x 64 from a hundred numbers."""

from __future__ import annotations

from torch import nn


def _doubled(i: int, o: int, stride: int = 2, padding: int = 1) -> list[nn.Module]:
    return [nn.ConvTranspose2d(i, o, 4, stride, padding, bias=False), nn.BatchNorm2d(o), nn.ReLU()]


def generator() -> nn.Module:
    """3.6 M parameters."""
    return nn.Sequential(
        *_doubled(100, 512, 1, 0), *_doubled(512, 256), *_doubled(256, 128), *_doubled(128, 64),
        nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip
