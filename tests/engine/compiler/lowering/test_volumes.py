"""Networks on volumes: what becomes of their operators, and that it agrees with the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session
from engine.pnnx import Operator
from tests.engine.graph.build import F32, INPUT, built, conv, op

RANDOM = np.random.default_rng(9)
SHAPE = (2, 6, 5, 6, 7)
# Which of them is chosen depends on the processor.
CONVOLUTIONS = ("conv", "winograd")


def check(net: RuntimeGraph, shape: tuple[int, ...] = SHAPE, x: Any = None) -> dict[str, str]:
    """Hold machine code against the reference; the kernel of every operator."""
    x = RANDOM.standard_normal(shape).astype(F32) if x is None else x
    with np.errstate(all="ignore"):
        (wanted,) = Session(net, backend="reference").run([x])
    session = Session(net, backend="compiled", cache=None, threads=1)
    for _ in range(2):
        (found,) = session.run([x])
        np.testing.assert_allclose(
            found, wanted, rtol=0, atol=2e-5 * max(1.0, float(np.abs(np.nan_to_num(wanted)).max()))
        )
    return {each["name"]: each.get("kernel") for each in session.describe()["operators"]}


def net_of(*operators: Operator, shape: tuple[int, ...] = SHAPE) -> RuntimeGraph:
    return built(INPUT, *operators, op("pnnx.Output", "out", operators[-1].outputs[0]), _0=shape)


def deconv(name: str, channels: tuple[int, int], kernel: tuple[int, ...], **given: Any) -> Operator:
    weight = RANDOM.standard_normal((channels[0], channels[1] // given.get("groups", 1), *kernel)).astype(F32)
    params = {
        "in_channels": channels[0],
        "out_channels": channels[1],
        "kernel_size": kernel,
        "stride": (1, 1, 1),
        "padding": (0, 0, 0),
        "output_padding": (0, 0, 0),
        "dilation": (1, 1, 1),
        "groups": 1,
        "bias": False,
        "weight": weight,
    }
    return op("nn.ConvTranspose3d", name, "0", "1", **{**params, **given})


@pytest.mark.parametrize(
    ("kernel", "given", "wanted"),
    [
        ((3, 3, 3), {"padding": (1, 1, 1)}, CONVOLUTIONS),
        ((3, 3, 3), {"padding": (1, 1, 1), "stride": (2, 2, 2)}, CONVOLUTIONS),
        ((1, 1, 1), {}, ["conv"]),
        ((1, 1, 1), {"stride": (2, 2, 2)}, ["conv"]),
        ((3, 1, 1), {"padding": (1, 0, 0)}, ["conv"]),
        ((3, 2, 5), {"padding": (2, 1, 3), "dilation": (2, 1, 3)}, CONVOLUTIONS),
        ((3, 3, 3), {"padding": (1, 1, 1), "padding_mode": "replicate"}, CONVOLUTIONS),
        ((3, 3, 3), {"padding": (1, 1, 1), "groups": 2}, ["conv"]),
        ((3, 3, 3), {"padding": "same"}, CONVOLUTIONS),
        ((1, 3, 3), {"padding": (0, 5, 5), "dilation": (1, 5, 5)}, CONVOLUTIONS),
        ((3, 3, 3), {"padding": (1, 5, 5), "dilation": (1, 5, 5)}, CONVOLUTIONS),
        ((2, 1, 1), {"padding": (9, 0, 0)}, ["conv"]),
    ],
    ids=str,
)
def test_convolutions_have_a_kernel(kernel: tuple[int, ...], given: dict[str, Any], wanted: Sequence[str]) -> None:
    assert check(net_of(conv("conv", "0", "1", (6, 18), kernel, **given)))["conv"] in wanted


def test_filters_of_single_planes_are_those_of_images() -> None:
    shape = (2, 24, 3, 20, 20)
    net = net_of(conv("conv", "0", "1", (24, 32), (1, 3, 3), padding=(0, 1, 1)), shape=shape)
    assert check(net, shape)["conv"] == "winograd"


@pytest.mark.parametrize("stride", [(1, 1, 1), (1, 2, 2), (2, 1, 1)], ids=str)
def test_every_channel_may_have_a_filter_of_its_own(stride: tuple[int, ...]) -> None:
    given = {"groups": 6, "padding": (1, 1, 1), "stride": stride}
    assert check(net_of(conv("conv", "0", "1", (6, 6), (3, 3, 3), **given)))["conv"] == "depthwise"


@pytest.mark.parametrize(
    ("kernel", "given"),
    [
        ((2, 2, 2), {"stride": (2, 2, 2)}),
        ((4, 4, 4), {"stride": (2, 2, 2), "padding": (1, 1, 1)}),
        ((3, 3, 3), {"stride": (2, 1, 3), "padding": (1, 0, 2), "output_padding": (1, 0, 1)}),
        ((3, 3, 3), {"stride": (2, 2, 2), "padding": (1, 1, 1)}),
        ((3, 1, 2), {"groups": 3, "stride": (1, 1, 2)}),
    ],
    ids=str,
)
def test_transposed_convolutions_have_a_kernel(kernel: tuple[int, ...], given: dict[str, Any]) -> None:
    assert check(net_of(deconv("conv", (6, 9), kernel, **given)))["conv"] == "conv"


def test_a_norm_a_residual_and_an_activation_join_a_convolution() -> None:
    norm = {key: RANDOM.random(6).astype(F32) + 0.5 for key in ("weight", "bias", "running_mean", "running_var")}
    kernels = check(
        net_of(
            conv("first", "0", "1", (6, 6), (3, 3, 3), padding=(1, 1, 1)),
            op("nn.BatchNorm3d", "norm", "1", "2", num_features=6, eps=1e-5, affine=True, **norm),
            op("nn.SiLU", "act", "2", "3"),
            conv("second", "3", "4", (6, 6), (3, 3, 3), padding=(1, 1, 1)),
            op("pnnx.Expression", "sum", "4 3", "5", expr="add(@0,@1)"),
            op("nn.ReLU", "last", "5", "6"),
        )
    )
    assert kernels["first"] in CONVOLUTIONS and kernels["second"] in CONVOLUTIONS
    assert kernels["act"] == kernels["last"] == "fused"


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_parts_of_a_concatenation_along_any_dimension(dim: int) -> None:
    kernels = check(
        net_of(
            conv("a", "0", "1", (6, 6), (3, 3, 3), padding=(1, 1, 1)),
            conv("b", "0", "2", (6, 6), (1, 1, 1)),
            op("torch.cat", "cat", "1 2", "3", dim=dim),
            conv("c", "3", "4", (12 if dim == 1 else 6, 5), (3, 3, 3), padding=(1, 1, 1)),
        )
    )
    assert kernels["c"] in CONVOLUTIONS


@pytest.mark.parametrize(
    "pool",
    [
        op("nn.MaxPool3d", "pool", "1", "2", kernel_size=(3, 3, 3), stride=(2, 2, 2), padding=(1, 1, 1)),
        op("nn.AvgPool3d", "pool", "1", "2", kernel_size=(2, 2, 2), stride=(1, 2, 2), padding=(1, 0, 1)),
        op("nn.AdaptiveAvgPool3d", "pool", "1", "2", output_size=(3, 4, 2)),
        op("nn.AdaptiveAvgPool3d", "pool", "1", "2", output_size=(1, 1, 1)),
        op("nn.AdaptiveMaxPool3d", "pool", "1", "2", output_size=(2, 2, 2)),
        op("nn.LPPool3d", "pool", "1", "2", norm_type=2, kernel_size=(2, 2, 2), stride=(2, 2, 2), ceil_mode=False),
        op("torch.mean", "pool", "1", "2", dim=(2, 3, 4), keepdim=True),
        op("nn.Upsample", "pool", "1", "2", mode="trilinear", scale_factor=(2.0, 1.5, 2.0), align_corners=False),
        op("nn.Upsample", "pool", "1", "2", mode="nearest", scale_factor=(2.0, 2.0, 2.0)),
    ],
    ids=lambda pool: f"{pool.type}-{len(pool.params)}",
)
def test_pools_and_resampling_have_a_kernel(pool: Operator) -> None:
    """Between convolutions that want zeros around what they read."""
    kernels = check(
        net_of(
            conv("before", "0", "1", (6, 20), (3, 3, 3), padding=(1, 1, 1)),
            pool,
            conv("after", "2", "3", (20, 5), (3, 3, 3), padding=(1, 1, 1)),
        )
    )
    assert kernels["pool"] not in (None, "reference")


def test_what_is_not_finite_spoils_the_windows_over_it_alone() -> None:
    x = RANDOM.standard_normal(SHAPE).astype(F32)
    x[0, 1, 0, 2, 3], x[1, 2, 4, 5, 6] = np.nan, np.inf
    check(net_of(conv("conv", "0", "1", (6, 18), (3, 3, 3), padding=(1, 1, 1))), x=x)
    check(net_of(op("nn.MaxPool3d", "pool", "0", "1", kernel_size=(2, 2, 2), stride=(2, 2, 2), padding=(1, 1, 1))), x=x)


@pytest.mark.parametrize("sizes", [(2, 1, 8), (1, 4, 1), (1, 1, 1)], ids=str)
def test_dimensions_of_one_element_have_their_zeros_too(sizes: tuple[int, ...]) -> None:
    shape = (2, 6, *sizes)
    check(net_of(conv("conv", "0", "1", (6, 10), (3, 3, 3), padding=(2, 2, 2)), shape=shape), shape)


def test_planes_chosen_from_a_batch_are_read_where_they_lie_or_copied() -> None:
    kernels = check(
        net_of(
            conv("a", "0", "1", (6, 6), (1, 1, 1)),
            op("Tensor.slice", "slice", "1", "2", dim=2, start=0, end=5, step=2),
            conv("b", "2", "3", (6, 6), (3, 3, 3), padding=(1, 1, 1)),
        )
    )
    assert kernels["b"] in CONVOLUTIONS
