"""EfficientNet-B0 (Tan and Le 2019), as torchvision defines it."""

from __future__ import annotations

from torch import Tensor, nn

from benchmarks.networks.blocks import SqueezeExcite, conv_norm


def _silu() -> nn.Module:
    return nn.SiLU(inplace=True)


class _MBConv(nn.Module):
    """Inverted residual with squeeze-excite; what is squeezed counts the input's channels, not the widened ones."""

    def __init__(self, i: int, o: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        mid = i * expansion
        layers: list[nn.Module] = [conv_norm(i, mid, 1, act=_silu)] if expansion != 1 else []
        layers += [conv_norm(mid, mid, kernel, stride, mid, _silu), SqueezeExcite(mid, i // 4, _silu, nn.Sigmoid)]
        self.body = nn.Sequential(*layers, conv_norm(mid, o, 1, act=None))
        self.is_residual = stride == 1 and i == o

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + x if self.is_residual else self.body(x)


def efficientnet_b0() -> nn.Module:
    """5.3 M parameters, 0.39 G multiply-adds."""
    layers: list[nn.Module] = [conv_norm(3, 32, 3, 2, act=_silu)]
    channels = 32
    for expansion, kernel, stride, o, depth in (
        (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1),
    ):  # fmt: skip
        for index in range(depth):
            layers.append(_MBConv(channels, o, expansion, kernel, stride if index == 0 else 1))
            channels = o
    layers += [conv_norm(320, 1280, 1, act=_silu), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(1280, 1000))
