"""Samples of grids; sampled images, regions of interest and suppression (recording the last two needs torchvision)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from record import Sample
from torchvision.ops import RoIAlign, nms, roi_align

IMAGE, VOLUME = torch.randn(2, 3, 5, 6), torch.randn(1, 2, 3, 4, 5)
GRID, GRID3 = torch.rand(2, 4, 3, 2) * 3 - 1.5, torch.rand(1, 2, 3, 4, 3) * 3 - 1.5
HALVES = (torch.rand(2, 4, 3, 2) * 12 - 6).round() / 6
ROIS = torch.tensor([[0.0, 1, 1, 9, 7], [1, 0, 2, 3, 20], [1, -4, -4, 30, 30], [0, 4, 4, 4, 4], [0, 7, 6, 2, 1]])
BOXES = torch.rand(12, 4) * 5 + torch.tensor([0.0, 0, 4, 4])
PARAM = """7767517
4 3
pnnx.Input in0 0 1 0 #0={}f32
pnnx.Input in1 0 1 1 #1={}f32
pnnx.custom_op.torchvision.{} op 2 1 0 1 2 {} $arg_0=0 $arg_1=1 {}
pnnx.Output out0 1 0 2
"""
SAMPLES = [
    Sample(
        f"F_grid_sample_{mode}_{padding}_{align}".lower(),
        lambda x, g, mode=mode, padding=padding, align=align: F.grid_sample(x, g, mode, padding, align),
        (IMAGE, HALVES if mode == "nearest" else GRID),
    )
    for mode in ("bilinear", "nearest", "bicubic")
    for padding in ("zeros", "border", "reflection")
    for align in (False, True)
] + [
    Sample(
        f"F_grid_sample_volume_{mode}_{padding}",
        lambda x, g, mode=mode, padding=padding: F.grid_sample(x, g, mode, padding, False),
        (VOLUME, GRID3),
    )
    for mode, padding in (("bilinear", "zeros"), ("nearest", "border"), ("bilinear", "reflection"))
]
SAMPLES += [
    Sample(
        "F_grid_sample_f64",
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        (IMAGE.double(), GRID.double()),
        rtol=1e-12,
    ),
    Sample(
        "F_grid_sample_dynamic",
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        (IMAGE, GRID),
        further=[(torch.randn(1, 3, 1, 1), torch.rand(1, 1, 7, 2)), (torch.randn(0, 3, 2, 2), torch.rand(0, 3, 3, 2))],
        dynamic=(torch.randn(3, 3, 9, 8), torch.rand(3, 2, 5, 2)),
    ),
    Sample("F_affine_grid", lambda t: F.affine_grid(t, (2, 3, 4, 5), align_corners=False), (torch.randn(2, 2, 3),)),
    Sample(
        "F_affine_grid_corners", lambda t: F.affine_grid(t, (2, 3, 4, 1), align_corners=True), (torch.randn(2, 2, 3),)
    ),
    Sample(
        "F_affine_grid_volume",
        lambda t: F.affine_grid(t, (1, 3, 2, 4, 3), align_corners=False),
        (torch.randn(1, 3, 4),),
    ),
    Sample(
        "F_affine_grid_dynamic",
        lambda t, x: F.grid_sample(x, F.affine_grid(t, x.size(), align_corners=False), align_corners=False),
        (torch.randn(2, 2, 3), IMAGE),
        further=[(torch.randn(1, 2, 3), torch.randn(1, 3, 2, 9))],
        dynamic=(torch.randn(3, 2, 3), torch.randn(3, 3, 7, 8)),
    ),
    Sample("roi_align_module", RoIAlign(3, 0.5, 2), (IMAGE, ROIS)),
    Sample("roi_align_module_adaptive", RoIAlign((2, 4), 0.7, -1, aligned=True), (IMAGE, ROIS[:3])),
    Sample("roi_align_module_adaptive_unaligned", RoIAlign((3, 2), 1.0, 0), (IMAGE, ROIS)),
    Sample(
        "roi_align_module_dynamic",
        RoIAlign(2, 0.5, 2),
        (IMAGE, ROIS),
        further=[(torch.randn(2, 3, 9, 3), ROIS[:0])],
        dynamic=(torch.randn(4, 3, 8, 8), ROIS[:3]),
    ),
    Sample(
        "roi_align_custom_op",
        lambda x, r: roi_align(x, r, (2, 3), 0.5, 2, True),
        (IMAGE, ROIS),
        param=PARAM.format(
            "(2,3,5,6)", "(5,5)", "roi_align", "arg_2=0.5 arg_3=2 arg_4=3 arg_5=2 arg_6=True", "#2=(5,3,2,3)f32"
        ),
    ),
    Sample(
        "nms_custom_op",
        lambda b, s: nms(b, s, 0.3),
        (BOXES, torch.rand(12)),
        further=[
            (BOXES[:4], torch.tensor([0.5, 0.7, 0.5, 0.5])),
            (BOXES[:0], torch.zeros(0)),
            (BOXES[[1, 1, 1]], torch.ones(3)),
        ],
        param=PARAM.format("(?,4)", "(?)", "nms", "arg_2=0.3", "#2=(7)i64"),
    ),
]
