"""Networks without batch norm: VGG-11 (Simonyan 2014) and SqueezeNet 1.1 (Iandola 2016), as torchvision has them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks.blocks import relu


def vgg11() -> nn.Module:
    """132.9 M parameters, 7.6 G multiply-adds; three quarters of the parameters in one linear layer."""
    layers: list[nn.Module] = []
    channels = 3
    for stage in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for o in stage:
            layers += [nn.Conv2d(channels, o, 3, padding=1), relu()]
            channels = o
        layers.append(nn.MaxPool2d(2, 2))
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(512 * 49, 4096), relu(), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(4096, 4096), relu(), nn.Dropout(), nn.Linear(4096, 1000))


class _Fire(nn.Module):
    def __init__(self, i: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Conv2d(i, squeezed, 1), relu())
        self.expand1x1 = nn.Sequential(nn.Conv2d(squeezed, expanded, 1), relu())
        self.expand3x3 = nn.Sequential(nn.Conv2d(squeezed, expanded, 3, padding=1), relu())

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze(x)
        return torch.cat([self.expand1x1(x), self.expand3x3(x)], 1)


def squeezenet1_1() -> nn.Module:
    """1.2 M parameters, 0.35 G multiply-adds."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 2), relu(), _pool(), _Fire(64, 16, 64), _Fire(128, 16, 64), _pool()]
    layers += [_Fire(128, 32, 128), _Fire(256, 32, 128), _pool(), _Fire(256, 48, 192), _Fire(384, 48, 192)]
    layers += [_Fire(384, 64, 256), _Fire(512, 64, 256), nn.Dropout(), nn.Conv2d(512, 1000, 1), relu()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _pool() -> nn.Module:
    return nn.MaxPool2d(3, 2, ceil_mode=True)
