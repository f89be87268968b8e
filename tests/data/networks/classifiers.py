"""Image classifiers at reduced width: plain, residual, dense and branching convolutional networks."""

from __future__ import annotations

import torch
from building import conv_bn, network, picture
from torch import Tensor, nn


class BasicBlock(nn.Module):
    def __init__(self, i: int, o: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv_bn(i, o, 3, stride)
        self.conv2 = conv_bn(o, o, 3, 1, act=nn.Identity())
        self.short = conv_bn(i, o, 1, stride, act=nn.Identity()) if stride != 1 or i != o else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv2(self.conv1(x)) + self.short(x))


class Bottleneck(nn.Module):
    def __init__(self, i: int, mid: int, o: int, stride: int, groups: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_bn(i, mid, 1), conv_bn(mid, mid, 3, stride, groups), conv_bn(mid, o, 1, act=nn.Identity())
        )
        self.short = conv_bn(i, o, 1, stride, act=nn.Identity()) if stride != 1 or i != o else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.short(x))


def head(channels: int, classes: int = 10) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def resnet() -> nn.Module:
    stem = nn.Sequential(conv_bn(3, 8, 7, 2), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(stem, BasicBlock(8, 8, 1), BasicBlock(8, 16, 2), BasicBlock(16, 16, 1), head(16))


def resnet_bottleneck() -> nn.Module:
    return nn.Sequential(conv_bn(3, 8), Bottleneck(8, 4, 16, 1), Bottleneck(16, 8, 32, 2), head(32))


def regnet() -> nn.Module:
    return nn.Sequential(
        conv_bn(3, 8, 3, 2), Bottleneck(8, 16, 16, 2, groups=4), Bottleneck(16, 24, 24, 2, groups=6), head(24)
    )


def vgg() -> nn.Module:
    def stage(i: int, o: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2, 2))

    features = nn.Sequential(stage(3, 8), stage(8, 16), stage(16, 16))
    classifier = nn.Sequential(nn.Linear(16 * 16, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 10))
    return nn.Sequential(features, nn.Flatten(1), classifier)


class Fire(nn.Module):
    def __init__(self, i: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(i, squeeze, 1)
        self.one, self.three = nn.Conv2d(squeeze, expand, 1), nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.one(x)), torch.relu(self.three(x))], 1)


def squeezenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True),
        Fire(8, 4, 8), Fire(16, 4, 8), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(16, 6, 12),
        nn.Dropout(), nn.Conv2d(24, 10, 1), nn.ReLU(), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(),
    )  # fmt: skip


class DenseLayer(nn.Module):
    def __init__(self, i: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(i), nn.Conv2d(i, 2 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(2 * growth), nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(torch.relu(self.norm2(self.conv1(torch.relu(self.norm1(x))))))
        return torch.cat([x, y], 1)


def densenet() -> nn.Module:
    transition = nn.Sequential(nn.BatchNorm2d(20), nn.ReLU(), nn.Conv2d(20, 10, 1, bias=False), nn.AvgPool2d(2, 2))
    dense = [nn.Sequential(*(DenseLayer(i + 4 * k, 4) for k in range(3))) for i in (8, 10)]
    return nn.Sequential(conv_bn(3, 8, 3, 2), dense[0], transition, dense[1], nn.BatchNorm2d(22), nn.ReLU(), head(22))


class InceptionBlock(nn.Module):
    def __init__(self, i: int) -> None:
        super().__init__()
        self.one = conv_bn(i, 4, 1)
        self.twice = nn.Sequential(conv_bn(i, 4, 1), conv_bn(4, 6, 3), conv_bn(6, 6, 3))
        self.tall = nn.Sequential(
            conv_bn(i, 4, 1), nn.Conv2d(4, 4, (1, 7), padding=(0, 3)), nn.Conv2d(4, 6, (7, 1), padding=(3, 0))
        )
        self.pool = conv_bn(i, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        pooled = nn.functional.avg_pool2d(x, 3, 1, 1)
        return torch.cat([self.one(x), self.twice(x), self.tall(x), self.pool(pooled)], 1)


def inception() -> nn.Module:
    return nn.Sequential(conv_bn(3, 8, 3, 2), InceptionBlock(8), InceptionBlock(20), head(20))


SAMPLES = [
    network("resnet", resnet(), picture(64)),
    network("resnet_bottleneck", resnet_bottleneck(), picture()),
    network("regnet", regnet(), picture()),
    network("vgg", vgg(), picture()),
    network("squeezenet", squeezenet(), picture(63)),
    network("densenet", densenet(), picture()),
    network("inception", inception(), picture()),
]
