"""Convolutions over time: letters from a spectrogram (after wav2letter), and a causal network (TCN)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import pad

BANDS = 80


def _heard(i: int, o: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv1d(i, o, kernel, stride, kernel // 2, bias=False), nn.BatchNorm1d(o), nn.ReLU()]


def letters() -> nn.Module:
    """80 bands of 400 frames -> logits of 29 letters, every second frame: 3.7 M parameters."""
    return nn.Sequential(
        *_heard(BANDS, 256, 11, stride=2),
        *(layer for _ in range(4) for layer in _heard(256, 256, 7)),
        *_heard(256, 512, 13), *_heard(512, 512, 1), nn.Conv1d(512, 29, 1),
    )  # fmt: skip


class _Causal(nn.Module):
    """Two convolutions that look back alone, and what came in (Bai et al. 2018)."""

    def __init__(self, i: int, o: int, dilation: int) -> None:
        super().__init__()
        self.back = 2 * dilation
        self.first, self.second = nn.Conv1d(i, o, 3, dilation=dilation), nn.Conv1d(o, o, 3, dilation=dilation)
        self.same = nn.Conv1d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(pad(x, (self.back, 0))).relu()
        y = self.second(pad(y, (self.back, 0))).relu()
        return (y + self.same(x)).relu()


def tcn() -> nn.Module:
    """64 features of 500 steps -> 10 logits a step, with dilations up to 32: 0.3 M parameters."""
    blocks = [_Causal(64 if depth == 0 else 96, 96, 1 << depth) for depth in range(6)]
    return nn.Sequential(*blocks, nn.Conv1d(96, 10, 1))
