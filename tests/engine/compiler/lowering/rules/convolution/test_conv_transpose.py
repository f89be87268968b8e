"""Transposed convolutions of which outputs meet no tap: the bias there, and what follows, by kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.pnnx import Operator
from tests.engine.compiler.lowering.agreeing import check, everywhere
from tests.engine.graph.build import F32, op

TOLERANCE = 1e-5
JOINED = (op("nn.Sigmoid", "after", "1", "2"),)


def layer(rank: int, channels: tuple[int, int] = (6, 4), groups: int = 1, **given_: Any) -> Operator:
    """Return a transposed convolution of 0 with random weights and bias; other parameters are PyTorch's defaults."""
    random = np.random.default_rng(3)
    given_ = {"stride": (1,) * rank, "dilation": (1,) * rank, **given_}
    kernel = given_["kernel_size"]
    params = {"padding": (0,) * rank, "output_padding": (0,) * rank, "in_channels": channels[0]}
    weight = random.standard_normal((channels[0], channels[1] // groups, *kernel)).astype(F32)
    bias = random.standard_normal(channels[1]).astype(F32)
    given_ = {**params, "out_channels": channels[1], "groups": groups, **given_}
    return op(f"nn.ConvTranspose{rank}d", "up", "0", "1", weight=weight, bias=bias, **given_)


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(F32)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [(3, 2, 2), (1, 3, 1), (2, 5, 1), (3, 4, 6), (2, 40, 1), (1, 2**31 - 1, 1)]
)
def test_signals_whose_stride_misses_outputs(kernel: int, stride: int, dilation: int, groups: int) -> None:
    size = 1 if stride > 100 else 9
    made = layer(1, groups=groups, kernel_size=(kernel,), stride=(stride,), dilation=(dilation,))
    everywhere([image(2, 6, size)], made, *JOINED, tolerance=TOLERANCE)


@pytest.mark.parametrize("padding", [(0, 0), (1, 2)])
def test_images_whose_stride_misses_outputs(padding: tuple[int, int]) -> None:
    made = layer(
        2, kernel_size=(2, 3), stride=(3, 2), dilation=(1, 2), padding=padding, output_padding=(2, 1), groups=2
    )
    everywhere([image(2, 6, 4, 5)], made, *JOINED, tolerance=TOLERANCE)


def test_volumes_whose_stride_misses_outputs() -> None:
    for planes in (1, 3):
        made = layer(3, kernel_size=(1, 2, 3), stride=(2, 3, 2), dilation=(1, 1, 2), output_padding=(1, 0, 1))
        everywhere([image(2, 6, planes, 3, 4)], made, *JOINED, tolerance=TOLERANCE)


def test_no_output_may_meet_a_tap() -> None:
    """Two elements five apart, of which the padding cuts off both ends: what is left is the bias."""
    made = layer(1, kernel_size=(1,), stride=(5,), padding=(2,))
    check([image(1, 6, 2)], made, *JOINED, tolerance=TOLERANCE)


def test_what_is_not_finite_stays_where_taps_reach() -> None:
    x = image(1, 6, 4, 5)
    x[0, 2, 1, 3], x[0, 0, 0, 0] = np.nan, np.inf
    check([x], layer(2, kernel_size=(2, 2), stride=(3, 4)), tolerance=TOLERANCE)


def test_a_residual_is_added_where_no_tap_reaches() -> None:
    added = op("pnnx.Expression", "add", "2 1", "3", expr="add(@0,mul(@1,2))")
    made = layer(2, kernel_size=(2, 2), stride=(3, 4))
    first = replace(made, name="first", outputs=("2",))
    check([image(1, 6, 4, 5)], made, first, added, tolerance=TOLERANCE)


@pytest.mark.parametrize(
    ("channels", "groups", "kernel", "stride"),
    [
        ((24, 24), 24, (4, 4), (3, 3)),  # a filter a channel
        ((20, 20), 20, (5, 3), (1, 2)),
        ((64, 1), 1, (5, 5), (2, 2)),  # few channels, whose phases meet different numbers of taps
        ((64, 3), 1, (3, 3), (1, 1)),
        ((64, 2), 2, (3, 4), (2, 2)),
        ((32, 48), 1, (6, 6), (2, 2)),  # phases of 3 x 3 taps, as Winograd's algorithm computes them
        ((32, 32), 1, (3, 3), (1, 1)),
    ],
)
def test_every_kernel_of_an_ordinary_convolution_computes_phases(
    channels: tuple[int, int], groups: int, kernel: tuple[int, int], stride: tuple[int, int]
) -> None:
    made = layer(2, channels, groups, kernel_size=kernel, stride=stride, padding=(1, 1))
    x = image(2, channels[0], 11, 14) * np.float32((channels[0] // groups * 9) ** -0.5)
    everywhere([x], made, *JOINED, tolerance=5e-5)


@given(st.data())
def test_any_parameters(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))

    def drawn(*choices: int) -> tuple[int, ...]:
        return tuple(data.draw(st.sampled_from(choices)) for _ in range(rank))

    stride, dilation, kernel, padding = drawn(1, 2, 3, 5), drawn(1, 1, 2, 3, 4), drawn(1, 2, 3, 4), drawn(0, 0, 1, 2)
    more = tuple(data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True))
    sizes, groups = drawn(1, 2, 3, 6), data.draw(st.sampled_from((1, 2)))
    rows = zip(sizes, stride, padding, dilation, kernel, more, strict=True)
    assume(all((n - 1) * s - 2 * p + d * (k - 1) + o >= 0 for n, s, p, d, k, o in rows))
    given_ = {"stride": stride, "dilation": dilation, "kernel_size": kernel, "padding": padding}
    channels = groups * data.draw(st.sampled_from((1, 3, 9))), groups * data.draw(st.sampled_from((1, 2, 17)))
    made = layer(rank, channels, groups, output_padding=more, **given_)
    check([image(data.draw(st.integers(1, 2)), channels[0], *sizes)], made, *JOINED, tolerance=TOLERANCE)
