"""CRNN (Shi et al. 2015): text in a line of grey pixels, read by convolutions and two recurrent layers."""

from __future__ import annotations

from torch import Tensor, nn

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


def crnn() -> nn.Module:
    """8.3 M parameters, 37 letters."""
    return _Crnn(37)
