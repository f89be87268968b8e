"""Operators on images: convolution, pooling, normalisation, resampling."""

from __future__ import annotations

from typing import Any

from benchmarks.layers.case import Case, Draw, normal, uniform

MAPS, PHOTO = normal(1, 64, 56, 56), normal(1, 3, 224, 224)


def _conv(note: str, x: Draw, weight: Draw, **params: Any) -> Case:
    rank = len(x.shape) - 2
    given = {"stride": (1,) * rank, "padding": (0,) * rank, "dilation": (1,) * rank, "groups": 1} | params
    attributes = {"weight": weight, "bias": normal(weight.shape[0])}

    def call(t: Any, x: Any, w: Any, b: Any) -> Any:
        convolve = t.nn.functional.conv1d if rank == 1 else t.nn.functional.conv2d
        return convolve(x, w, b, given["stride"], given["padding"], given["dilation"], given["groups"])

    sizes = {"in_channels": x.shape[1], "out_channels": weight.shape[0], "kernel_size": weight.shape[2:], "bias": True}
    return Case(family="conv", type=f"nn.Conv{rank}d", note=note, operands=(x,), attributes=attributes,
                params=given | sizes, call=call)  # fmt: skip


def _pool(family: str, type: str, call: Any, drawn: Draw = MAPS, **params: Any) -> Case:
    return Case(family=family, type=type, call=call, operands=(drawn,), params=params)


CONVOLUTIONS = (
    _conv("3x3", MAPS, normal(64, 64, 3, 3), padding=(1, 1)),
    _conv("1x1", MAPS, normal(128, 64, 1, 1)),
    _conv("depthwise", MAPS, normal(64, 1, 3, 3), padding=(1, 1), groups=64),
    _conv("groups", MAPS, normal(64, 8, 3, 3), padding=(1, 1), groups=8),
    _conv("7x7 stride 2", PHOTO, normal(64, 3, 7, 7), padding=(3, 3), stride=(2, 2)),
    _conv("", normal(1, 80, 1000), normal(128, 80, 5), padding=(2,)),
    Case(family="conv", type="nn.ConvTranspose2d", operands=(normal(1, 64, 28, 28),),
         attributes={"weight": normal(64, 32, 4, 4), "bias": normal(32)},
         params={"in_channels": 64, "out_channels": 32, "kernel_size": (4, 4), "stride": (2, 2), "padding": (1, 1),
                 "output_padding": (0, 0), "dilation": (1, 1), "groups": 1, "bias": True},
         call=lambda t, x, w, b: t.nn.functional.conv_transpose2d(x, w, b, 2, 1)),
    Case(family="fold", type="nn.Unfold", operands=(MAPS,), call=lambda t, x: t.nn.functional.unfold(x, 3, 1, 1, 1),
         params={"kernel_size": (3, 3), "dilation": (1, 1), "padding": (1, 1), "stride": (1, 1)}),
    Case(family="fold", type="nn.Fold", operands=(normal(1, 576, 3136),),
         call=lambda t, x: t.nn.functional.fold(x, (56, 56), 3, 1, 1, 1),
         params={"output_size": (56, 56), "kernel_size": (3, 3), "dilation": (1, 1), "padding": (1, 1),
                 "stride": (1, 1)}),
)  # fmt: skip

POOLS = (
    _pool("pool", "nn.MaxPool2d", lambda t, x: t.max_pool2d(x, 3, 2, 1), kernel_size=(3, 3), stride=(2, 2),
          padding=(1, 1), dilation=(1, 1), ceil_mode=False, return_indices=False),
    _pool("pool", "nn.AvgPool2d", lambda t, x: t.nn.functional.avg_pool2d(x, 2), kernel_size=(2, 2), stride=(2, 2),
          padding=(0, 0), ceil_mode=False, count_include_pad=True),
    _pool("pool", "nn.LPPool2d", lambda t, x: t.nn.functional.lp_pool2d(x, 2, 2), norm_type=2.0, kernel_size=(2, 2),
          stride=(2, 2), ceil_mode=False),
    _pool("adaptive_pool", "nn.AdaptiveAvgPool2d", lambda t, x: t.nn.functional.adaptive_avg_pool2d(x, 1),
          output_size=(1, 1)),
    _pool("adaptive_pool", "nn.AdaptiveMaxPool2d", lambda t, x: t.nn.functional.adaptive_max_pool2d(x, 7),
          output_size=(7, 7)),
    _pool("pad", "F.pad", lambda t, x: t.nn.functional.pad(x, (1, 1, 1, 1)), pad=(1, 1, 1, 1), mode="constant",
          value=0.0),
    Case(family="pad", type="F.pad", note="reflect", operands=(PHOTO,), params={"pad": (4, 4, 4, 4), "mode": "reflect"},
         call=lambda t, x: t.nn.functional.pad(x, (4, 4, 4, 4), "reflect")),
)  # fmt: skip


def _norm(type: str, call: Any, names: tuple[str, ...], channels: int = 64, **params: Any) -> Case:
    attributes = {name: uniform(channels) for name in names}
    return Case(family="norm", type=type, call=call, operands=(MAPS,), attributes=attributes, params=params)


NORMS = (
    _norm("nn.BatchNorm2d", lambda t, x, m, v, w, b: t.nn.functional.batch_norm(x, m, v, w, b),
          ("running_mean", "running_var", "weight", "bias"), num_features=64, eps=1e-5, affine=True),
    _norm("nn.GroupNorm", lambda t, x, w, b: t.nn.functional.group_norm(x, 8, w, b), ("weight", "bias"),
          num_groups=8, num_channels=64, eps=1e-5, affine=True),
    _norm("nn.InstanceNorm2d", lambda t, x, w, b: t.nn.functional.instance_norm(x, None, None, w, b),
          ("weight", "bias"), num_features=64, eps=1e-5, affine=True, track_running_stats=False),
    _norm("nn.LocalResponseNorm", lambda t, x: t.nn.functional.local_response_norm(x, 5), (), size=5, alpha=1e-4,
          beta=0.75, k=1.0),
    _norm("F.normalize", lambda t, x: t.nn.functional.normalize(x), (), p=2.0, dim=1, eps=1e-12),
    Case(family="norm", type="nn.LayerNorm", operands=(normal(1, 197, 768),),
         attributes={"weight": uniform(768), "bias": uniform(768)},
         params={"normalized_shape": (768,), "eps": 1e-5, "elementwise_affine": True},
         call=lambda t, x, w, b: t.nn.functional.layer_norm(x, (768,), w, b)),
    Case(family="norm", type="nn.RMSNorm", operands=(normal(1, 197, 768),), attributes={"weight": uniform(768)},
         params={"normalized_shape": (768,), "eps": 1e-5, "elementwise_affine": True},
         call=lambda t, x, w: t.nn.functional.rms_norm(x, (768,), w, 1e-5)),
)  # fmt: skip


def _resized(note: str, x: Draw = MAPS, **params: Any) -> Case:
    settings = {"scale_factor": (2.0, 2.0)} | params
    return Case(family="resample", type="F.interpolate", note=note, operands=(x,), params=settings,
                call=lambda t, x: t.nn.functional.interpolate(x, **settings))  # fmt: skip


RESAMPLED = (
    _resized("nearest", mode="nearest"),
    _resized("bilinear", mode="bilinear", align_corners=False),
    _resized("bicubic", PHOTO, mode="bicubic", align_corners=False),
    Case(family="grid", type="F.grid_sample", operands=(MAPS, uniform(1, 56, 56, 2)),
         params={"mode": "bilinear", "padding_mode": "zeros", "align_corners": False},
         call=lambda t, x, g: t.nn.functional.grid_sample(x, g, align_corners=False)),
    Case(family="grid", type="F.affine_grid", operands=(normal(8, 2, 3),),
         params={"size": (8, 3, 112, 112), "align_corners": False},
         call=lambda t, x: t.nn.functional.affine_grid(x, (8, 3, 112, 112), align_corners=False)),
)  # fmt: skip

CASES = (*CONVOLUTIONS, *POOLS, *NORMS, *RESAMPLED)
