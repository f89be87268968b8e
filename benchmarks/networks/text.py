"""CRNN (Shi et al. 2015): text in a line of grey pixels, read by convolutions and two recurrent layers.

DBNet (Liao et al. 2020): where a picture has text, from a pyramid of features of MobileNetV2-like blocks.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.networks.blocks import conv_norm


class _Crnn(nn.Module):
    """A line (N, 1, 32, W) -> logits (W/4 + 1, N, letters)."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 64, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 128, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
            conv_norm(128, 256), nn.Conv2d(256, 256, 3, 1, 1), nn.ReLU(), nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            conv_norm(256, 512), nn.Conv2d(512, 512, 3, 1, 1), nn.ReLU(), nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            nn.Conv2d(512, 512, 2), nn.BatchNorm2d(512), nn.ReLU(),
        )  # fmt: skip
        self.first = nn.LSTM(512, 256, bidirectional=True)
        self.between = nn.Linear(512, 256)
        self.second = nn.LSTM(256, 256, bidirectional=True)
        self.head = nn.Linear(512, letters)

    def forward(self, x: Tensor) -> Tensor:
        steps = self.features(x).squeeze(2).permute(2, 0, 1)
        steps, _ = self.first(steps)
        steps, _ = self.second(self.between(steps))
        return self.head(steps)


class _Inverted(nn.Module):
    """Expansion, depthwise convolution and projection, with a shortcut where shapes allow it."""

    def __init__(self, i: int, o: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_norm(i, 4 * i, 1), conv_norm(4 * i, 4 * i, 3, stride, groups=4 * i), conv_norm(4 * i, o, 1, act=None)
        )
        self.is_residual = stride == 1 and i == o

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.is_residual else self.body(x)


class _DbNet(nn.Module):
    """A picture (N, 3, H, W), sizes multiples of 32 -> probability of text for each pixel (N, 1, H, W)."""

    def __init__(self, widths: tuple[int, ...] = (16, 24, 56, 120), channels: int = 96) -> None:
        super().__init__()
        self.stem = conv_norm(3, widths[0], 3, 2)
        pairs = zip((widths[0], *widths), widths, strict=False)
        self.stages = nn.ModuleList(nn.Sequential(_Inverted(i, o, 2), _Inverted(o, o, 1)) for i, o in pairs)
        self.lateral = nn.ModuleList(nn.Conv2d(width, channels, 1, bias=False) for width in widths)
        self.smooth = nn.ModuleList(nn.Conv2d(channels, channels // 4, 3, 1, 1, bias=False) for _ in widths)
        quarter = channels // 4
        self.head = nn.Sequential(
            conv_norm(channels, quarter), nn.ConvTranspose2d(quarter, quarter, 2, 2), nn.BatchNorm2d(quarter),
            nn.ReLU(), nn.ConvTranspose2d(quarter, 1, 2, 2), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x, features = self.stem(x), []
        for stage, lateral in zip(self.stages, self.lateral, strict=True):
            x = stage(x)
            features.append(lateral(x))
        for k in range(len(features) - 2, -1, -1):
            features[k] = features[k] + F.interpolate(features[k + 1], scale_factor=2.0)
        smooth = [layer(each) for layer, each in zip(self.smooth, features, strict=True)]
        wide = [F.interpolate(each, scale_factor=2.0**k) if k else each for k, each in enumerate(smooth)]
        return self.head(torch.cat(wide[::-1], 1))


def dbnet() -> nn.Module:
    """0.34 M parameters."""
    return _DbNet()


def crnn() -> nn.Module:
    """8.3 M parameters, 37 letters."""
    return _Crnn(37)
