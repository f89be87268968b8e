"""Conv-TasNet, which separates two voices: a signal is coded, masked for each, and decoded."""

from __future__ import annotations

from torch import Tensor, nn

FILTERS, BOTTLENECK, HIDDEN, KERNEL = 256, 128, 256, 16
BLOCKS, REPEATS = 8, 2


class _Block(nn.Module):
    """A dilated filter a channel between two 1×1 convolutions, each normalised over all channels and steps."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.wide = nn.Sequential(nn.Conv1d(BOTTLENECK, HIDDEN, 1), nn.PReLU(), nn.GroupNorm(1, HIDDEN))
        self.along = nn.Sequential(
            nn.Conv1d(HIDDEN, HIDDEN, 3, padding=dilation, dilation=dilation, groups=HIDDEN),
            nn.PReLU(),
            nn.GroupNorm(1, HIDDEN),
        )
        self.rest, self.skip = nn.Conv1d(HIDDEN, BOTTLENECK, 1), nn.Conv1d(HIDDEN, BOTTLENECK, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.along(self.wide(x))
        return x + self.rest(y), self.skip(y)


class _TasNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv1d(1, FILTERS, KERNEL, KERNEL // 2, bias=False), nn.ReLU())
        self.narrow = nn.Sequential(nn.GroupNorm(1, FILTERS), nn.Conv1d(FILTERS, BOTTLENECK, 1))
        self.blocks = nn.ModuleList(_Block(2 ** (k % BLOCKS)) for k in range(BLOCKS * REPEATS))
        self.masks = nn.Sequential(nn.PReLU(), nn.Conv1d(BOTTLENECK, 2 * FILTERS, 1), nn.Sigmoid())
        self.decoder = nn.ConvTranspose1d(FILTERS, 1, KERNEL, KERNEL // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        code = self.encoder(x)
        y = self.narrow(code)
        y, total = self.blocks[0](y)
        for block in self.blocks[1:]:
            y, skip = block(y)
            total = total + skip
        masks = self.masks(total)
        voices = [self.decoder(code * mask) for mask in masks.chunk(2, 1)]
        first, second = voices
        return first - second


def tasnet() -> nn.Module:
    """(N, 1, 16000) -> the difference of both voices (N, 1, 16000): 1.7 M parameters."""
    return _TasNet()
