"""DenseNet-121 (Huang et al. 2016), as torchvision defines it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks.blocks import relu

GROWTH = 32


class _DenseLayer(nn.Module):
    def __init__(self, i: int) -> None:
        super().__init__()
        mid = 4 * GROWTH
        self.bottleneck = nn.Sequential(nn.BatchNorm2d(i), relu(), nn.Conv2d(i, mid, 1, bias=False))
        self.grow = nn.Sequential(nn.BatchNorm2d(mid), relu(), nn.Conv2d(mid, GROWTH, 3, padding=1, bias=False))

    def forward(self, features: list[Tensor]) -> Tensor:
        return self.grow(self.bottleneck(torch.cat(features, 1)))


class _DenseBlock(nn.Module):
    """Every layer sees all that was made before it in this block."""

    def __init__(self, i: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_DenseLayer(i + index * GROWTH) for index in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


def densenet121() -> nn.Module:
    """8.0 M parameters, 2.8 G multiply-adds."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), relu()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels = 64
    for block, depth in enumerate((6, 12, 24, 16)):
        layers.append(_DenseBlock(channels, depth))
        channels += depth * GROWTH
        layers += [nn.BatchNorm2d(channels), relu()]
        if block < 3:
            layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2, 2)]
            channels //= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))
