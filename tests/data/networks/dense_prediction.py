"""Networks that answer for every pixel: segmentation, detection, super-resolution, a decoder."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from building import conv_bn, network, picture
from classifiers import BasicBlock, head
from torch import Tensor, nn


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = (
            nn.Sequential(conv_bn(i, o), conv_bn(o, o)) for i, o in ((3, 6), (6, 12), (12, 20))
        )
        self.up2, self.up1 = nn.ConvTranspose2d(20, 12, 2, 2), nn.ConvTranspose2d(12, 6, 2, 2)
        self.conv2, self.conv1 = conv_bn(24, 12), conv_bn(12, 6)
        self.out = nn.Conv2d(6, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        b = self.conv2(torch.cat([self.up2(c), b], 1))
        return self.out(self.conv1(torch.cat([self.up1(b), a], 1)))


class DeepLab(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 8, 3, 2), conv_bn(8, 12, 3, 2))
        self.branches = nn.ModuleList([conv_bn(12, 6, 1), *(conv_bn(12, 6, 3, d=d) for d in (2, 3, 4))])
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv_bn(12, 6, 1))
        self.project = nn.Sequential(conv_bn(30, 8, 1), nn.Dropout(0.5), nn.Conv2d(8, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        size = y.shape[-2:]
        pooled = F.interpolate(self.pool(y), size=size, mode="bilinear", align_corners=False)
        y = self.project(torch.cat([branch(y) for branch in self.branches] + [pooled], 1))
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


class FPN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList([conv_bn(3, 6, 3, 2), BasicBlock(6, 10, 2), BasicBlock(10, 16, 2)])
        self.lateral = nn.ModuleList([nn.Conv2d(c, 8, 1) for c in (6, 10, 16)])
        self.smooth = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1) for _ in range(3)])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        maps = [lateral(f) for lateral, f in zip(self.lateral, features, strict=True)]
        for k in (1, 0):
            maps[k] = maps[k] + F.interpolate(maps[k + 1], scale_factor=2.0, mode="nearest")
        return tuple(smooth(m) for smooth, m in zip(self.smooth, maps, strict=True))


class C3(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        half, act = c // 2, nn.SiLU()
        self.a, self.b, self.out = conv_bn(c, half, 1, act=act), conv_bn(c, half, 1, act=act), conv_bn(c, c, 1, act=act)
        self.inner = nn.Sequential(conv_bn(half, half, 1, act=act), conv_bn(half, half, 3, act=act))

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        return self.out(torch.cat([a + self.inner(a), self.b(x)], 1))


class SPPF(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.into, self.out = conv_bn(c, c // 2, 1, act=nn.SiLU()), conv_bn(2 * c, c, 1, act=nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        y = F.max_pool2d(x, 5, 1, 2)
        z = F.max_pool2d(y, 5, 1, 2)
        return self.out(torch.cat([x, y, z, F.max_pool2d(z, 5, 1, 2)], 1))


class Backbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        act = nn.SiLU()
        self.stem = nn.Sequential(conv_bn(3, 8, 6, 2, act=act), conv_bn(8, 12, 3, 2, act=act), C3(12))
        self.p4 = nn.Sequential(conv_bn(12, 16, 3, 2, act=act), C3(16), SPPF(16))
        self.lateral = conv_bn(16, 12, 1, act=act)
        self.merge = nn.Sequential(conv_bn(24, 12, 1, act=act), C3(12))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        p3 = self.stem(x)
        p4 = self.p4(p3)
        up = F.interpolate(self.lateral(p4), size=p3.shape[-2:], mode="nearest")
        return self.merge(torch.cat([up, p3], 1)), p4


class YOLOv5(nn.Module):
    """Anchors, sigmoid boxes, as YOLOv5's Detect head does at inference."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.backbone, self.no = Backbone(), classes + 5
        self.detect = nn.ModuleList([nn.Conv2d(c, 3 * self.no, 1) for c in (12, 16)])
        self.register_buffer(
            "anchors", torch.tensor([[[10.0, 13], [16, 30], [33, 23]], [[30, 61], [62, 45], [59, 119]]])
        )

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for k, (feature, conv, stride) in enumerate(zip(self.backbone(x), self.detect, (4, 8), strict=True)):
            n, _, h, w = feature.shape
            y = conv(feature).view(n, 3, self.no, h, w).permute(0, 1, 3, 4, 2).contiguous().sigmoid()
            gy, gx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
            grid = torch.stack((gx, gy), 2).expand(1, 3, h, w, 2).float() - 0.5
            xy, wh, rest = y.split((2, 2, self.no - 4), 4)
            xy = (xy * 2 + grid) * stride
            wh = (wh * 2) ** 2 * self.anchors[k].view(1, 3, 1, 1, 2)
            found.append(torch.cat((xy, wh, rest), 4).view(n, 3 * h * w, self.no))
        return torch.cat(found, 1)


class YOLOv8(nn.Module):
    """Distribution focal loss head: boxes as distances to four sides, output (N, 4 + classes, anchors)."""

    def __init__(self, classes: int = 3, bins: int = 8) -> None:
        super().__init__()
        self.backbone, self.bins, self.classes = Backbone(), bins, classes
        self.box = nn.ModuleList(
            [nn.Sequential(conv_bn(c, 8, act=nn.SiLU()), nn.Conv2d(8, 4 * bins, 1)) for c in (12, 16)]
        )
        self.cls = nn.ModuleList(
            [nn.Sequential(conv_bn(c, 8, act=nn.SiLU()), nn.Conv2d(8, classes, 1)) for c in (12, 16)]
        )
        self.dfl = nn.Conv2d(bins, 1, 1, bias=False)
        self.dfl.weight.data[:] = torch.arange(bins, dtype=torch.float).view(1, bins, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        features = self.backbone(x)
        n = x.shape[0]
        maps = [torch.cat((b(f), c(f)), 1) for f, b, c in zip(features, self.box, self.cls, strict=True)]
        joined = torch.cat([m.view(n, 4 * self.bins + self.classes, -1) for m in maps], 2)
        box, cls = joined.split((4 * self.bins, self.classes), 1)
        points, strides = [], []
        for f, s in zip(features, (4.0, 8.0), strict=True):
            h, w = f.shape[-2:]
            gy, gx = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
            points.append(torch.stack((gx, gy), -1).view(-1, 2))
            strides.append(torch.full((h * w, 1), s))
        anchors, stride = torch.cat(points).transpose(0, 1).unsqueeze(0), torch.cat(strides).transpose(0, 1)
        dist = self.dfl(box.view(n, 4, self.bins, -1).transpose(2, 1).softmax(1)).view(n, 4, -1)
        lt, rb = dist.chunk(2, 1)
        low, high = anchors - lt, anchors + rb
        boxes = torch.cat(((low + high) / 2, high - low), 1) * stride
        return torch.cat((boxes, cls.sigmoid()), 1)


class ESPCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 5, padding=2), nn.Conv2d(16, 8, 3, padding=1)
        self.conv3, self.shuffle = nn.Conv2d(8, 4, 3, padding=1), nn.PixelShuffle(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.shuffle(self.conv3(torch.tanh(self.conv2(torch.tanh(self.conv1(x))))))


def vae_decoder() -> nn.Module:
    def up(i: int, o: int) -> nn.Module:
        return nn.Sequential(
            nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(2, o), nn.SiLU()
        )

    return nn.Sequential(
        nn.Linear(8, 16 * 4 * 4), nn.Unflatten(1, (16, 4, 4)), up(16, 8), up(8, 6),
        nn.ConvTranspose2d(6, 4, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(4, 3, 3, padding=1), nn.Tanh(),
    )  # fmt: skip


class MultiTask(nn.Module):
    """Nested outputs: (class, (box, [mask, feature]))."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 8, 3, 2), BasicBlock(8, 8, 1))
        self.cls, self.box, self.mask = head(8, 5), head(8, 4), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, tuple[Tensor, Tensor]]]:
        y = self.stem(x)
        return self.cls(y).softmax(1), (self.box(y).sigmoid(), (self.mask(y), y.mean((2, 3))))


SAMPLES = [
    network(
        "unet",
        UNet(),
        picture(32),
        dynamic=[torch.randn(2, 3, 48, 40)],
        further=[[torch.randn(1, 3, 24, 56)], [torch.randn(4, 3, 64, 16)]],
    ),
    network("deeplab", DeepLab(), picture(33)),
    network(
        "deeplab_dynamic",
        DeepLab(),
        picture(33),
        dynamic=[torch.randn(2, 3, 48, 40)],
        further=[[torch.randn(1, 3, 29, 57)], [torch.randn(4, 3, 64, 18)]],
    ),
    network("fpn", FPN(), picture(32)),
    network("yolov5", YOLOv5(), picture(64), atol=2e-4),
    network(
        "yolov5_dynamic",
        YOLOv5(),
        picture(64),
        dynamic=[torch.randn(2, 3, 96, 128)],
        further=[[torch.randn(1, 3, 32, 64)], [torch.randn(3, 3, 128, 32)]],
        atol=2e-4,
    ),
    network("yolov8", YOLOv8(), picture(64), atol=2e-4),
    network(
        "espcn",
        ESPCN(),
        picture(16, 1),
        dynamic=[torch.randn(2, 1, 20, 23)],
        further=[[torch.randn(1, 1, 31, 9)], [torch.randn(5, 1, 8, 27)]],
    ),
    network("vae_decoder", vae_decoder(), torch.randn(1, 8)),
    network("multi_task", MultiTask(), picture(32)),
]
