"""YOLOv5 n and s, release 7.0 of ultralytics: CSP backbone, path aggregation, Detect head that decodes boxes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks.blocks import conv_norm

CLASSES = 80
STRIDES = (8, 16, 32)
ANCHORS = (
    ((10, 13), (16, 30), (33, 23)),
    ((30, 61), (62, 45), (59, 119)),
    ((116, 90), (156, 198), (373, 326)),
)


def _silu() -> nn.Module:
    return nn.SiLU(inplace=True)


def _conv(i: int, o: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    return conv_norm(i, o, kernel, stride, act=_silu, eps=1e-3)


class _Bottleneck(nn.Module):
    def __init__(self, channels: int, shortcut: bool) -> None:
        super().__init__()
        self.cv1, self.cv2 = _conv(channels, channels), _conv(channels, channels, 3)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = self.cv2(self.cv1(x))
        return x + y if self.shortcut else y


class _C3(nn.Module):
    def __init__(self, i: int, o: int, depth: int, shortcut: bool = True) -> None:
        super().__init__()
        half = o // 2
        self.cv1, self.cv2, self.cv3 = _conv(i, half), _conv(i, half), _conv(2 * half, o)
        self.m = nn.Sequential(*(_Bottleneck(half, shortcut) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        return self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1))


class _SPPF(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.cv1, self.cv2 = _conv(channels, channels // 2), _conv(2 * channels, channels)
        self.m = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.cv1(x)
        y1 = self.m(x)
        y2 = self.m(y1)
        return self.cv2(torch.cat((x, y1, y2, self.m(y2)), 1))


def _grid(height: int, width: int) -> Tensor:
    y, x = torch.arange(height, dtype=torch.float32), torch.arange(width, dtype=torch.float32)
    rows, columns = torch.meshgrid(y, x, indexing="ij")
    return torch.stack((columns, rows), 2).expand(1, 3, height, width, 2) - 0.5


class _Detect(nn.Module):
    """Three maps -> boxes (x, y, w, h in pixels), objectness and classes: (N, 25200, 85) at 640x640.

    Args:
        size: of the pictures; None computes the grids from the maps in every run, for pictures of any size.
    """

    def __init__(self, channels: tuple[int, ...], size: int | None) -> None:
        super().__init__()
        self.m = nn.ModuleList(nn.Conv2d(c, 3 * (CLASSES + 5), 1) for c in channels)
        self.fixed = size is not None
        for level, stride in enumerate(STRIDES):
            anchor = torch.tensor(ANCHORS[level], dtype=torch.float32).view(1, 3, 1, 1, 2)
            if size is not None:
                grid = _grid(size // stride, size // stride)
                anchor = anchor.expand_as(grid).clone()
                self.register_buffer(f"grid{level}", grid.clone(), persistent=False)
            self.register_buffer(f"anchor_grid{level}", anchor, persistent=False)

    def forward(self, maps: list[Tensor]) -> Tensor:
        return torch.cat([self._decode(level, x) for level, x in enumerate(maps)], 1)

    def _decode(self, level: int, x: Tensor) -> Tensor:
        x = self.m[level](x)
        n, _, h, w = x.shape
        x = x.view(n, 3, CLASSES + 5, h, w).permute(0, 1, 3, 4, 2).contiguous()
        xy, wh, scores = x.sigmoid().split((2, 2, CLASSES + 1), 4)
        grid = getattr(self, f"grid{level}") if self.fixed else _grid(h, w)
        xy = (xy * 2 + grid) * STRIDES[level]
        wh = (wh * 2) ** 2 * getattr(self, f"anchor_grid{level}")
        return torch.cat((xy, wh, scores), 4).view(n, 3 * h * w, CLASSES + 5)


class _YOLOv5(nn.Module):
    def __init__(self, width: int, depth: int, size: int | None) -> None:
        super().__init__()
        c1, c2, c3, c4, c5 = (width << index for index in range(5))
        stem = nn.Sequential(nn.Conv2d(3, c1, 6, 2, 2, bias=False), nn.BatchNorm2d(c1, eps=1e-3), _silu())
        self.p3 = nn.Sequential(
            stem, _conv(c1, c2, 3, 2), _C3(c2, c2, depth), _conv(c2, c3, 3, 2), _C3(c3, c3, 2 * depth)
        )
        self.p4 = nn.Sequential(_conv(c3, c4, 3, 2), _C3(c4, c4, 3 * depth))
        self.p5 = nn.Sequential(_conv(c4, c5, 3, 2), _C3(c5, c5, depth), _SPPF(c5))
        self.up = nn.Upsample(None, 2, "nearest")
        self.lateral5, self.fuse4 = _conv(c5, c4), _C3(2 * c4, c4, depth, False)
        self.lateral4, self.fuse3 = _conv(c4, c3), _C3(2 * c3, c3, depth, False)
        self.down3, self.out4 = _conv(c3, c3, 3, 2), _C3(2 * c3, c4, depth, False)
        self.down4, self.out5 = _conv(c4, c4, 3, 2), _C3(2 * c4, c5, depth, False)
        self.detect = _Detect((c3, c4, c5), size)

    def forward(self, x: Tensor) -> Tensor:
        p3 = self.p3(x)
        p4 = self.p4(p3)
        lateral5 = self.lateral5(self.p5(p4))
        lateral4 = self.lateral4(self.fuse4(torch.cat((self.up(lateral5), p4), 1)))
        out3 = self.fuse3(torch.cat((self.up(lateral4), p3), 1))
        out4 = self.out4(torch.cat((self.down3(out3), lateral4), 1))
        out5 = self.out5(torch.cat((self.down4(out4), lateral5), 1))
        return self.detect([out3, out4, out5])


def yolov5n(size: int = 640) -> nn.Module:
    """1.9 M parameters, 2.3 G multiply-adds."""
    return _YOLOv5(16, 1, size)


def yolov5n_open() -> nn.Module:
    """Build YOLOv5n for pictures of any size that is a multiple of 32."""
    return _YOLOv5(16, 1, None)


def yolov5s(size: int = 640) -> nn.Module:
    """7.2 M parameters, 8.3 G multiply-adds."""
    return _YOLOv5(32, 1, size)
