"""Samples of normalisation: every type, with and without weights and statistics, odd shapes, dtypes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from record import Sample
from torch import Tensor, nn
from written import written

X = torch.randn(2, 4, 3, 5) * 3 + 10
LINE, VOLUME = torch.randn(3, 4, 7), torch.randn(2, 4, 2, 3, 3)
MEAN, VAR, WEIGHT, BIAS = torch.randn(4), torch.rand(4) + 0.1, torch.randn(4), torch.randn(4)
CHANNELS = (MEAN, VAR, WEIGHT, BIAS)


def trained(module: nn.Module) -> nn.Module:
    """The module with every weight and statistic off its initial value."""
    generator = torch.Generator().manual_seed(1)
    for tensor in module.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.2)
    return module.eval()


class Each(nn.Module):
    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        self.all = nn.ModuleList([trained(module) for module in modules])

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        inputs = inputs if len(inputs) == len(self.all) else inputs * len(self.all)
        return tuple(module(x) for module, x in zip(self.all, inputs, strict=True))


def most_functions(x: Tensor) -> tuple[Tensor, ...]:
    return F.layer_norm(x, (5,)), F.group_norm(x, 2), F.rms_norm(x, (5,)), F.instance_norm(x), F.normalize(x)


def functions(x: Tensor) -> tuple[Tensor, ...]:
    return *most_functions(x), F.local_response_norm(x, 3)


SAMPLES = [
    Sample("nn_BatchNorm", Each(nn.BatchNorm1d(4), nn.BatchNorm2d(4), nn.BatchNorm3d(4)), (LINE, X, VOLUME)),
    Sample(
        "nn_BatchNorm_plain",
        Each(nn.BatchNorm1d(4, affine=False, eps=0.1), nn.BatchNorm2d(4, affine=False)),
        (LINE[:, :, 0], X),
    ),
    Sample(
        "F_batch_norm",
        lambda x, m, v, w, b: (F.batch_norm(x, m, v), F.batch_norm(x, m, v, w, b, eps=0.1)),
        (X, *CHANNELS),
    ),
    Sample(
        "F_batch_norm_of_the_batch",
        lambda x, w, b: (F.batch_norm(x, None, None, training=True), F.batch_norm(x, None, None, w, b, training=True)),
        (X, WEIGHT, BIAS),
    ),
    Sample(
        "F_batch_norm_one_of_two",
        lambda x, m, v, w, b: (F.batch_norm(x, m, v, weight=w), F.batch_norm(x, m, v, bias=b)),
        (LINE, *CHANNELS),
    ),
    Sample("F_batch_norm_double", F.batch_norm, (X.double(), *[each.double() for each in CHANNELS])),
    Sample(
        "F_batch_norm_bfloat16",
        F.batch_norm,
        (X.bfloat16(), *CHANNELS),
        rtol=8e-3,
        atol=1e-3,
        param=written(dict(zip("xmvwb", (X.bfloat16(), *CHANNELS), strict=True)), "F.batch_norm x m v w b -> y"),
    ),
    Sample(
        "nn_InstanceNorm",
        Each(
            *[
                kind(4, affine=affine, track_running_stats=tracked, eps=0.01)
                for kind in (nn.InstanceNorm2d,)
                for affine in (False, True)
                for tracked in (False, True)
            ]
        ),
        (X,),
    ),
    Sample(
        "nn_InstanceNorm_others",
        Each(nn.InstanceNorm1d(4, affine=True), nn.InstanceNorm3d(4), nn.InstanceNorm3d(4, track_running_stats=True)),
        (LINE, VOLUME, VOLUME),
    ),
    Sample(
        "nn_InstanceNorm_unbatched",
        Each(
            nn.InstanceNorm1d(4, affine=True),
            nn.InstanceNorm2d(4),
            nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        ),
        (LINE[0], X[0], X[0]),
    ),
    Sample(
        "F_instance_norm",
        lambda x, m, v, w, b: (F.instance_norm(x), F.instance_norm(x, weight=w, bias=b, eps=0.5)),
        (X, *CHANNELS),
    ),
    Sample(
        "F_instance_norm_with_statistics",
        lambda x, m, v, w, b: (F.instance_norm(x, m, v, w, b), F.instance_norm(x, m + 1, v + 1)),
        (LINE, *CHANNELS),
    ),
    Sample(
        "aten_instance_norm",
        lambda x, m, v, w, b: (
            F.instance_norm(x, m, v, use_input_stats=False),
            F.instance_norm(x, m, v, w, b, use_input_stats=False),
        ),
        (X, *CHANNELS),
    ),
    Sample(
        "nn_LayerNorm",
        Each(nn.LayerNorm(5), nn.LayerNorm((3, 5), eps=0.5), nn.LayerNorm((4, 3, 5), elementwise_affine=False)),
        (X,),
    ),
    Sample(
        "F_layer_norm",
        lambda x, w, b: (
            F.layer_norm(x, (5,)),
            F.layer_norm(x, (3, 5), w, b),
            F.layer_norm(x, (3, 5), weight=w),
            F.layer_norm(x, (3, 5), bias=b, eps=2.0),
        ),
        (X, torch.randn(3, 5), torch.randn(3, 5)),
    ),
    Sample("layer_norm_of_a_vector", lambda x: F.layer_norm(x, (5,)), (X[0, 0, 0],)),
    Sample("layer_norm_far_from_zero", lambda x: F.layer_norm(x, (4096,)), (torch.randn(2, 4096) + 1000,), atol=1e-3),
    Sample(
        "layer_norm_of_constants",
        lambda x: (F.layer_norm(x, (4,)), F.layer_norm(x * float("nan"), (4,))),
        (torch.full((2, 4), 3.0),),
    ),
    Sample(
        "nn_GroupNorm", Each(nn.GroupNorm(2, 4), nn.GroupNorm(4, 4, eps=0.1), nn.GroupNorm(1, 4, affine=False)), (X,)
    ),
    Sample(
        "F_group_norm",
        lambda x, w, b: (
            F.group_norm(x, 2),
            F.group_norm(x, 4, w, b),
            F.group_norm(x, 1, weight=w),
            F.group_norm(x[:, :, 0, 0], 2, bias=b, eps=0.3),
        ),
        (X, WEIGHT, BIAS),
    ),
    Sample(
        "nn_RMSNorm", Each(nn.RMSNorm(5), nn.RMSNorm((3, 5), eps=0.5), nn.RMSNorm(5, elementwise_affine=False)), (X,)
    ),
    Sample(
        "F_rms_norm",
        lambda x, w: (F.rms_norm(x, (5,)), F.rms_norm(x, (3, 5), w), F.rms_norm(x, (5,), eps=0.1)),
        (X, torch.randn(3, 5)),
    ),
    Sample("rms_norm_of_almost_nothing", lambda x: F.rms_norm(x, (4,)), (torch.full((2, 4), 1e-5),)),
    Sample(
        "rms_norm_of_almost_nothing_half", lambda x: F.rms_norm(x, (4,)), (torch.full((2, 4), 1e-2).half(),), rtol=2e-3
    ),
    Sample(
        "rms_norm_of_almost_nothing_bfloat16",
        lambda x: F.rms_norm(x, (4,)),
        (torch.full((2, 4), 1e-2).bfloat16(),),
        rtol=8e-3,
    ),
    Sample(
        "nn_LocalResponseNorm",
        Each(nn.LocalResponseNorm(3), nn.LocalResponseNorm(4, 0.1, 0.5, 2.0), nn.LocalResponseNorm(1, 0.3)),
        (X,),
    ),
    Sample(
        "F_local_response_norm",
        lambda x: (
            F.local_response_norm(x, 2),
            F.local_response_norm(x, 7, 0.1),
            F.local_response_norm(x, 5, 0.2, 0.9, 0.5),
        ),
        (LINE,),
    ),
    Sample(
        "F_normalize",
        lambda x: (
            F.normalize(x),
            F.normalize(x, dim=-1),
            F.normalize(x, 1.0),
            F.normalize(x, 3.0, 0),
            F.normalize(x, float("inf"), 2),
            F.normalize(x, 0.0),
            F.normalize(x, float("-inf"), 3),
            F.normalize(x * 1e-9, eps=1e-3),
        ),
        (X,),
    ),
    Sample("F_normalize_zeros", lambda x: (F.normalize(x), F.normalize(x, dim=0)), (torch.zeros(3, 2),)),
    Sample("F_normalize_complex", F.normalize, (torch.complex(X[0, 0], X[1, 0]),)),
    Sample("double", functions, (X.double(),)),
    Sample("half", most_functions, (X.half(),), rtol=3e-3, atol=3e-3),
    Sample("bfloat16", most_functions, (X.bfloat16(),), rtol=2e-2, atol=2e-2),
    Sample(
        "empty", lambda x: (F.layer_norm(x, (5,)), F.rms_norm(x, (5,)), F.group_norm(x, 2)), (torch.zeros(0, 4, 5),)
    ),
    Sample(
        "infinities",
        lambda x: (F.layer_norm(x, (4,)), F.rms_norm(x, (4,)), F.normalize(x)),
        (torch.tensor([[1.0, float("inf"), 2, 3], [1e10, 2, 3, 4]]),),
    ),
    Sample("dynamic", functions, (X,), [(torch.randn(1, 4, 2, 5),)], dynamic=(torch.randn(3, 4, 6, 5),)),
    Sample(
        "parameters_as_operands",
        lambda x: (F.layer_norm(x, (3, 5)), F.rms_norm(x, (3, 5), eps=1e-5)),
        (X,),
        param=written(
            {"x": X},
            "F.layer_norm x None None [3,5] -> a eps=1e-5 $input=x $normalized_shape=constant2",
            "F.rms_norm x None [3,5] -> b eps=1e-5",
        ),
    ),
]
