"""PointNet's classifier without its transforms: every point by itself, then the largest of all points."""

from __future__ import annotations

from torch import Tensor, nn


class _PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = (3, 64, 64, 64, 128, 1024)
        layers: list[nn.Module] = []
        for i, o in zip(widths, widths[1:], strict=False):
            layers += [nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU()]
        self.points = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 40))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.points(x).max(2)[0])


def pointnet() -> nn.Module:
    """(N, 3, points) -> (N, 40): 0.8 M parameters."""
    return _PointNet()
