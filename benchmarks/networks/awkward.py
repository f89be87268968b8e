"""Small networks that fill neither vectors nor tiles, for engines tuned for round numbers."""

from __future__ import annotations

from torch import Tensor, nn

from benchmarks.networks.blocks import conv_norm


def _classes(width: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]


def odd_picture() -> nn.Module:
    """A plain network, for pictures whose sides are primes."""
    steps = [conv_norm(3, 32), conv_norm(32, 32, 3, 2), conv_norm(32, 64), conv_norm(64, 64, 3, 2), conv_norm(64, 128)]
    return nn.Sequential(*steps, *_classes(128))


def odd_channels() -> nn.Module:
    """3, 7, 11, 13 channels and so on, with kernels of 5 and 7."""
    steps = [conv_norm(3, 7, 7), conv_norm(7, 11, 5), nn.MaxPool2d(3, 2), conv_norm(11, 13), conv_norm(13, 29, 5)]
    return nn.Sequential(*steps, nn.MaxPool2d(3, 2), conv_norm(29, 31), conv_norm(31, 61, 1), *_classes(61))


def dilated() -> nn.Module:
    """Context by dilations of 1 to 16 (Yu and Koltun 2016), at full size."""
    holes = [
        layer for rate in (1, 2, 4, 8, 16, 1) for layer in (nn.Conv2d(32, 32, 3, 1, rate, dilation=rate), nn.ReLU())
    ]
    return nn.Sequential(conv_norm(3, 32), *holes, nn.Conv2d(32, 21, 1))


def groups_of_five() -> nn.Module:
    """Grouped convolutions, five channels a group."""
    steps = [conv_norm(3, 40)]
    steps += [nn.Sequential(conv_norm(40, 40, 3, groups=8), conv_norm(40, 40, 1)) for _ in range(4)]
    steps += [conv_norm(40, 80, 3, 2, groups=8), *(conv_norm(80, 80, 3, groups=16) for _ in range(3))]
    return nn.Sequential(*steps, *_classes(80))


class _Tiny(nn.Module):
    """A hundred operators on 48 numbers: what an operator costs that has nothing to do."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(48, 48) for _ in range(16))
        self.norms = nn.ModuleList(nn.LayerNorm(48) for _ in range(16))

    def forward(self, x: Tensor) -> Tensor:
        for part, norm in zip(self.parts, self.norms, strict=True):
            left, right = part(norm(x)).chunk(2, -1)
            x = x + nn.functional.pad(left.tanh() * right.sigmoid(), (12, 12))
        return x.softmax(-1)


def hundred_tiny() -> nn.Module:
    """Sixteen gated blocks of seven operators."""
    return _Tiny()
