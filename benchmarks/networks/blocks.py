"""Layers that several networks share."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

Activation = Callable[[], nn.Module]


def relu() -> nn.Module:
    """ReLU that overwrites its input, as torchvision writes it."""
    return nn.ReLU(inplace=True)


def conv_norm(
    i: int, o: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: Activation | None = relu, eps: float = 1e-5
) -> nn.Sequential:
    """Convolution without bias that keeps the size, batch norm, activation."""
    layers = [
        nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(o, eps=eps),
    ]
    return nn.Sequential(*layers, *([act()] if act is not None else []))


class SqueezeExcite(nn.Module):
    """Scale channels by what their means say: torchvision's SqueezeExcitation."""

    def __init__(self, channels: int, squeezed: int, act: Activation, gate: Activation) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
        self.activation, self.gate = act(), gate()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.fc2(self.activation(self.fc1(self.avgpool(x)))))


def round_channels(channels: float, divisor: int = 8) -> int:
    """The nearest multiple of the divisor that is not below nine tenths: torchvision's _make_divisible."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded
