"""Samples of images made larger or smaller."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from record import Sample
from torch import nn

SIGNAL, IMAGE, VOLUME = torch.randn(2, 3, 11), torch.randn(2, 3, 7, 6), torch.randn(1, 2, 3, 4, 5)
PIXELS = torch.randint(0, 256, (1, 3, 7, 6), dtype=torch.uint8)
BILINEAR = {"mode": "bilinear", "align_corners": False}
OTHER, THIRD = torch.randn(3, 3, 12, 5), torch.randn(1, 3, 2, 2)
UPSAMPLE_BILINEAR = """7767517
3 2
pnnx.Input in0 0 1 0 #0=(2,3,7,6)f32
F.upsample_bilinear u 1 1 0 1 {} $input=0 #0=(2,3,7,6)f32 #1={}f32
pnnx.Output out0 1 0 1
"""

SAMPLES = [
    Sample("nn_upsample_nearest", nn.Upsample(scale_factor=1.7), (IMAGE,)),
    Sample("nn_upsample_size", nn.Upsample(size=5), (SIGNAL,)),
    Sample("nn_upsample_linear", nn.Upsample(scale_factor=2.5, mode="linear"), (SIGNAL,)),
    Sample("nn_upsample_bilinear", nn.Upsample(scale_factor=(0.7, 1.3), mode="bilinear"), (torch.randn(1, 2, 10, 10),)),
    Sample("nn_upsample_bilinear_corners", nn.Upsample(size=(3, 9), mode="bilinear", align_corners=True), (IMAGE,)),
    Sample("nn_upsample_bicubic", nn.Upsample(scale_factor=1.7, mode="bicubic"), (IMAGE,)),
    Sample(
        "nn_upsample_recomputed",
        nn.Upsample(scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
        (IMAGE,),
    ),
    Sample("nn_upsample_trilinear", nn.Upsample(size=(5, 2, 7), mode="trilinear"), (VOLUME,)),
    Sample("nn_upsampling_nearest2d", nn.UpsamplingNearest2d(scale_factor=2), (IMAGE,)),
    Sample("nn_upsampling_nearest2d_size", nn.UpsamplingNearest2d(size=(3, 8)), (IMAGE,)),
    Sample("nn_upsampling_bilinear2d", nn.UpsamplingBilinear2d(scale_factor=2), (IMAGE,)),
    Sample("nn_upsampling_bilinear2d_size", nn.UpsamplingBilinear2d(size=(1, 8)), (IMAGE,)),
    Sample("F_upsample_nearest", lambda x: F.interpolate(x, scale_factor=2), (IMAGE,)),
    Sample("F_upsample_nearest_3d", lambda x: F.interpolate(x, scale_factor=(1.1, 0.5, 1.3)), (VOLUME,)),
    Sample("F_upsample_nearest_size_kept", lambda x: F.interpolate(x, scale_factor=(1.1, 2.15)), (IMAGE,)),
    Sample("F_upsample_nearest_large", lambda x: F.interpolate(x, scale_factor=1.01), (torch.randn(1, 1, 70, 65),)),
    Sample(
        "F_upsample_bilinear_thirds",
        lambda x: F.interpolate(x, scale_factor=1 / 3, **BILINEAR),
        (torch.randn(1, 1, 9, 15),),
    ),
    Sample("F_upsample_bilinear_size_kept", lambda x: F.interpolate(x, scale_factor=(1.1, 0.9), **BILINEAR), (IMAGE,)),
    Sample(
        "F_upsample_bicubic", lambda x: F.interpolate(x, size=(13, 4), mode="bicubic", align_corners=True), (IMAGE,)
    ),
    Sample(
        "F_upsample_bilinear_size_one",
        lambda x: F.interpolate(x, size=(1, 3), mode="bilinear"),
        (torch.randn(1, 1, 1, 1),),
    ),
    Sample("F_upsample_linear_f64", lambda x: F.interpolate(x, size=7, mode="linear"), (SIGNAL.double(),), rtol=1e-12),
    Sample(
        "F_upsample_linear_f16",
        lambda x: F.interpolate(x, size=7, mode="linear"),
        (SIGNAL.half(),),
        rtol=2e-3,
        atol=2e-3,
    ),
    Sample("F_upsample_nearest_bf16", lambda x: F.interpolate(x, size=(4, 9)), (IMAGE.bfloat16(),)),
    Sample("F_upsample_nearest_uint8", lambda x: F.interpolate(x, size=(4, 9)), (PIXELS,)),
    Sample("F_upsample_bilinear_uint8", lambda x: F.interpolate(x, size=(11, 4), mode="bilinear"), (PIXELS,)),
    Sample("F_upsample_bicubic_uint8", lambda x: F.interpolate(x, size=(11, 4), mode="bicubic"), (PIXELS,)),
    Sample(
        "F_upsample_extremes",
        lambda x: F.interpolate(x, size=7, mode="linear"),
        (torch.tensor([[[300.0, -300.0, float("inf"), 1.0]]]),),
    ),
    Sample("F_interpolate_nearest_exact", lambda x: F.interpolate(x, size=(3, 13), mode="nearest-exact"), (IMAGE,)),
    Sample(
        "F_interpolate_nearest_exact_scaled",
        lambda x: F.interpolate(x, scale_factor=1.1, mode="nearest-exact"),
        (SIGNAL,),
    ),
    Sample(
        "aten_upsample_nearest_exact1d",
        lambda x: F.interpolate(x, size=(x.size(2) + 4,), mode="nearest-exact"),
        (SIGNAL,),
        dynamic=(torch.randn(2, 3, 5),),
    ),
    Sample(
        "aten_upsample_nearest_exact2d",
        lambda x: F.interpolate(x, size=(x.size(2) // 2, x.size(3) + 3), mode="nearest-exact"),
        (IMAGE,),
        further=[(THIRD,)],
        dynamic=(OTHER,),
    ),
    Sample(
        "aten_upsample_nearest_exact3d",
        lambda x: F.interpolate(x, size=(x.size(2) + 1, x.size(3) + 3, x.size(4)), mode="nearest-exact"),
        (VOLUME,),
        dynamic=(torch.randn(1, 2, 6, 2, 7),),
    ),
    Sample(
        "F_interpolate_recomputed",
        lambda x: F.interpolate(x, scale_factor=1.3, mode="bicubic", recompute_scale_factor=True),
        (IMAGE,),
        further=[(THIRD,)],
        dynamic=(OTHER,),
        atol=1e-5,
    ),
    Sample(
        "F_upsample_dynamic_scale",
        lambda x: F.interpolate(x, scale_factor=1.7, **BILINEAR),
        (IMAGE,),
        further=[(THIRD,), (torch.randn(1, 3, 10, 20),), (torch.randn(0, 3, 4, 4),)],
        dynamic=(OTHER,),
    ),
    Sample(
        "F_upsample_dynamic_size",
        lambda x: F.interpolate(x, size=(x.size(2) * 2, x.size(3) + 1), **BILINEAR),
        (IMAGE,),
        further=[(THIRD,)],
        dynamic=(OTHER,),
    ),
    Sample(
        "F_upsample_like_another",
        lambda x, y: F.interpolate(x, size=y.shape[2:]),
        (IMAGE, OTHER),
        further=[(THIRD, IMAGE)],
        dynamic=(torch.randn(5, 3, 9, 9), torch.randn(4, 3, 11, 13)),
    ),
    Sample(
        "F_upsample_bilinear",
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
        (IMAGE,),
        param=UPSAMPLE_BILINEAR.format("scale_factor=2.0", "(2,3,14,12)"),
    ),
    Sample(
        "F_upsample_bilinear_size",
        lambda x: F.interpolate(x, size=(5, 9), mode="bilinear", align_corners=True),
        (IMAGE,),
        param=UPSAMPLE_BILINEAR.format("size=(5,9)", "(2,3,5,9)"),
    ),
    Sample(
        "aten_upsample_bilinear2d_aa", lambda x: F.interpolate(x, size=(3, 9), antialias=True, **BILINEAR), (IMAGE,)
    ),
    Sample(
        "aten_upsample_bilinear2d_aa_scaled",
        lambda x: F.interpolate(x, scale_factor=(0.3, 0.7), antialias=True, **BILINEAR),
        (torch.randn(1, 2, 13, 17),),
    ),
    Sample(
        "aten_upsample_bilinear2d_aa_uint8",
        lambda x: F.interpolate(x, size=(3, 9), antialias=True, **BILINEAR),
        (PIXELS,),
    ),
    Sample(
        "aten_upsample_bilinear2d_aa_dynamic",
        lambda x: F.interpolate(x, size=(x.size(2) // 2, x.size(3) + 1), antialias=True, **BILINEAR),
        (IMAGE,),
        further=[(THIRD,)],
        dynamic=(OTHER,),
    ),
    Sample(
        "aten_upsample_bicubic2d_aa", lambda x: F.interpolate(x, size=(3, 2), mode="bicubic", antialias=True), (IMAGE,)
    ),
    Sample(
        "aten_upsample_bicubic2d_aa_corners",
        lambda x: F.interpolate(x, scale_factor=0.6, mode="bicubic", antialias=True, align_corners=True),
        (IMAGE,),
    ),
]
