"""MobileNetV2 (Sandler et al. 2018) and MobileNetV3-Small (Howard et al. 2019), as torchvision defines them."""

from __future__ import annotations

from torch import Tensor, nn

from benchmarks.networks.blocks import Activation, SqueezeExcite, conv_norm, relu, round_channels


class _Inverted(nn.Module):
    """Widen, filter every channel, narrow; and the input added where the shape stays."""

    def __init__(
        self,
        i: int,
        mid: int,
        o: int,
        *,
        kernel: int = 3,
        stride: int = 1,
        act: Activation = relu,
        squeeze: bool = False,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(i, mid, 1, act=act, eps=eps)] if mid != i else []
        layers.append(conv_norm(mid, mid, kernel, stride, mid, act, eps))
        if squeeze:
            layers.append(SqueezeExcite(mid, round_channels(mid / 4), relu, lambda: nn.Hardsigmoid(inplace=True)))
        self.body = nn.Sequential(*layers, conv_norm(mid, o, 1, act=None, eps=eps))
        self.is_residual = stride == 1 and i == o

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.is_residual else self.body(x)


def _relu6() -> nn.Module:
    return nn.ReLU6(inplace=True)


def _hardswish() -> nn.Module:
    return nn.Hardswish(inplace=True)


def mobilenet_v2() -> nn.Module:
    """3.5 M parameters, 0.30 G multiply-adds."""
    layers: list[nn.Module] = [conv_norm(3, 32, 3, 2, act=_relu6)]
    channels = 32
    for expansion, o, depth, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for index in range(depth):
            first = stride if index == 0 else 1
            layers.append(_Inverted(channels, expansion * channels, o, stride=first, act=_relu6))
            channels = o
    layers += [conv_norm(320, 1280, 1, act=_relu6), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(1280, 1000))


def mobilenet_v3_small() -> nn.Module:
    """2.5 M parameters, 0.06 G multiply-adds."""
    layers: list[nn.Module] = [conv_norm(3, 16, 3, 2, act=_hardswish, eps=1e-3)]
    for i, kernel, mid, o, squeeze, act, stride in (
        (16, 3, 16, 16, True, relu, 2), (16, 3, 72, 24, False, relu, 2), (24, 3, 88, 24, False, relu, 1),
        (24, 5, 96, 40, True, _hardswish, 2), (40, 5, 240, 40, True, _hardswish, 1),
        (40, 5, 240, 40, True, _hardswish, 1), (40, 5, 120, 48, True, _hardswish, 1),
        (48, 5, 144, 48, True, _hardswish, 1), (48, 5, 288, 96, True, _hardswish, 2),
        (96, 5, 576, 96, True, _hardswish, 1), (96, 5, 576, 96, True, _hardswish, 1),
    ):  # fmt: skip
        layers.append(_Inverted(i, mid, o, kernel=kernel, stride=stride, act=act, squeeze=squeeze, eps=1e-3))
    layers += [conv_norm(96, 576, 1, act=_hardswish, eps=1e-3), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(576, 1024), _hardswish(), nn.Dropout(0.2), nn.Linear(1024, 1000))
