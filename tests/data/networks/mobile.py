"""Networks for phones at reduced width: depthwise convolutions, squeeze-excite, channel shuffle."""

from __future__ import annotations

import torch
from building import conv_bn, network, picture
from classifiers import head
from torch import Tensor, nn


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, squeezed: int, gate: nn.Module, act: nn.Module) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
        self.act, self.gate = act, gate

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.fc2(self.act(self.fc1(self.pool(x)))))


class Inverted(nn.Module):
    def __init__(self, i: int, mid: int, o: int, k: int, s: int, act: nn.Module, se: nn.Module | None = None) -> None:
        super().__init__()
        expand = [conv_bn(i, mid, 1, act=act)] if mid != i else []
        squeeze = [se] if se is not None else []
        self.body = nn.Sequential(
            *expand, conv_bn(mid, mid, k, s, mid, act), *squeeze, conv_bn(mid, o, 1, act=nn.Identity())
        )
        self.residual = s == 1 and i == o

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.residual else self.body(x)


def mobilenet_v2() -> nn.Module:
    act = nn.ReLU6()
    return nn.Sequential(
        conv_bn(3, 8, 3, 2, act=act), Inverted(8, 8, 6, 3, 1, act), Inverted(6, 24, 10, 3, 2, act),
        Inverted(10, 40, 10, 3, 1, act), conv_bn(10, 32, 1, act=act), nn.Dropout(0.2), head(32),
    )  # fmt: skip


class Branches(nn.Module):
    """Convolutions side by side and a normalisation, as MobileOne and RepVGG are trained."""

    def __init__(self, i: int, o: int, k: int, s: int = 1, groups: int = 1, repeats: int = 1) -> None:
        super().__init__()
        kernels = [1, *[k] * repeats] if k > 1 else [1] * repeats
        self.branches = nn.ModuleList(conv_bn(i, o, each, s, groups, nn.Identity()) for each in kernels)
        self.norm = nn.BatchNorm2d(i) if i == o and s == 1 else None

    def forward(self, x: Tensor) -> Tensor:
        total = 0 if self.norm is None else self.norm(x)
        for branch in self.branches:
            total = total + branch(x)
        return torch.relu(total)


def mobileone() -> nn.Module:
    return nn.Sequential(
        Branches(3, 8, 3, 2), Branches(8, 8, 3, 2, 8, 4), Branches(8, 12, 1, repeats=4), Branches(12, 12, 3, 1, 12, 4),
        Branches(12, 12, 1, repeats=4), Branches(12, 12, 3, 1), head(12),
    )  # fmt: skip


def mobilenet_v3() -> nn.Module:
    def se(c: int) -> nn.Module:
        return SqueezeExcite(c, max(c // 4, 4), nn.Hardsigmoid(), nn.ReLU())

    swish = nn.Hardswish()
    return nn.Sequential(
        conv_bn(3, 8, 3, 2, act=swish), Inverted(8, 8, 8, 3, 2, nn.ReLU(), se(8)), Inverted(8, 24, 12, 5, 2, swish, se(24)),
        Inverted(12, 36, 12, 5, 1, swish, se(36)), conv_bn(12, 32, 1, act=swish), nn.AdaptiveAvgPool2d(1), nn.Flatten(1),
        nn.Linear(32, 24), nn.Hardswish(), nn.Linear(24, 10),
    )  # fmt: skip


def efficientnet() -> nn.Module:
    def se(c: int, squeezed: int) -> nn.Module:
        return SqueezeExcite(c, squeezed, nn.Sigmoid(), nn.SiLU())

    act = nn.SiLU()
    return nn.Sequential(
        conv_bn(3, 8, 3, 2, act=act), Inverted(8, 8, 6, 3, 1, act, se(8, 2)), Inverted(6, 36, 10, 5, 2, act, se(36, 3)),
        Inverted(10, 60, 10, 3, 1, act, se(60, 3)), conv_bn(10, 40, 1, act=act), head(40),
    )  # fmt: skip


class ShuffleUnit(nn.Module):
    def __init__(self, i: int, o: int, stride: int) -> None:
        super().__init__()
        half, self.stride = o // 2, stride
        into = i if stride == 2 else i // 2
        self.left = nn.Sequential(
            conv_bn(i, i, 3, 2, i, nn.Identity()), conv_bn(i, half, 1)
        ) if stride == 2 else nn.Identity()  # fmt: skip
        self.right = nn.Sequential(
            conv_bn(into, half, 1), conv_bn(half, half, 3, stride, half, nn.Identity()), conv_bn(half, half, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=1) if self.stride == 1 else (x, x)
        y = torch.cat([self.left(left), self.right(right)], 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


def shufflenet() -> nn.Module:
    return nn.Sequential(
        conv_bn(3, 8, 3, 2),
        nn.MaxPool2d(3, 2, 1),
        ShuffleUnit(8, 20, 2),
        ShuffleUnit(20, 20, 1),
        conv_bn(20, 32, 1),
        head(32),
    )


SAMPLES = [
    network("mobilenet_v2", mobilenet_v2(), picture(48)),
    network("mobilenet_v3", mobilenet_v3(), picture(48)),
    network("efficientnet", efficientnet(), picture(47)),
    network("shufflenet", shufflenet(), picture(48)),
    network("mobileone", mobileone(), picture(48)),
]
