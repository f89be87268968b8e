"""Convolutions of few pixels, transposed ones to few channels: other kernels than usual, between guard pages."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Session
from engine.pnnx import Operator
from tests.combining import together
from tests.engine.compiler.lowering.agreeing import check, net_of
from tests.engine.graph.build import F32, op

RANDOM = np.random.default_rng(11)
TOLERANCE = 1e-5
AFTER = op("nn.ReLU", "after", "1", "2")


def random(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(F32)


def transposed(
    weight: np.ndarray, has_bias: bool, stride: tuple[int, ...], padding: int = 0, more: int = 0
) -> Operator:
    inputs, outputs, *kernel = weight.shape
    rank = len(kernel)
    return op(
        f"nn.ConvTranspose{rank}d", "up", "0", "1", in_channels=inputs, out_channels=outputs, kernel_size=tuple(kernel),
        groups=1, stride=stride, padding=(padding,) * rank, output_padding=(more,) * rank, dilation=(1,) * rank,
        weight=weight, bias=random(outputs) if has_bias else False,
    )  # fmt: skip


@together(
    ("outputs", [1, 3, 40]),
    ("kernel", [5, 20, 33]),
    ("stride", [2, 8, 17, 40]),
    ("padding", [0, 3]),
    ("more", [0, 1]),
    ("length", [2, 9]),
    ("batch", [1, 2]),
    ("has_bias", [False, True]),
)
def test_transposed_convolutions_of_signals_to_few_channels_or_by_large_strides(
    outputs: int, kernel: int, stride: int, padding: int, more: int, length: int, batch: int, has_bias: bool
) -> None:
    up = transposed(random(7, outputs, kernel), has_bias, (stride,), padding, more)
    check([random(batch, 7, length)], up, AFTER, tolerance=TOLERANCE)


@together(
    ("outputs", [1, 3, 4]),
    ("kernel", [(2, 2), (4, 4), (9, 9), (3, 5), (1, 2)]),
    ("stride", [(2, 2), (4, 4), (1, 3)]),
    ("padding", [0, 1, 2]),
    ("more", [0, 1]),
    ("shape", [(1, 1), (5, 9)]),
    ("batch", [1, 2]),
    ("has_bias", [False, True]),
)
def test_transposed_convolutions_of_images_to_few_channels(
    outputs: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: int,
    more: int,
    shape: tuple[int, int],
    batch: int,
    has_bias: bool,
) -> None:
    sizes = [(n - 1) * s - 2 * padding + k for n, s, k in zip(shape, stride, kernel, strict=True)]
    padding, more = padding if min(sizes) > 0 else 0, min(more, min(stride) - 1)
    up = transposed(random(7, outputs, *kernel), has_bias, stride, padding, more)
    check([random(batch, 7, *shape)], up, AFTER, tolerance=TOLERANCE)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("kernel", [4, 5])
def test_what_is_not_finite_goes_no_farther_than_taps_reach(rank: int, kernel: int) -> None:
    x = random(1, 7, *(6,) * rank)
    x[0, 2].flat[0], x[0, 3].flat[-1] = np.inf, np.nan
    up = transposed(random(7, 2, *(kernel,) * rank), True, (2,) * rank, 1)
    check([x], up, tolerance=TOLERANCE)


@pytest.mark.parametrize(("length", "stride", "padding"), [(50, 4 * 10**5, 49 * 4 * 10**5 // 2), (1, 2**31 - 1, 0)])
def test_hardly_anything_between_large_paddings_is_not_summed_in_full(length: int, stride: int, padding: int) -> None:
    x, up = random(1, 2, length), transposed(random(2, 1, 3), False, (stride,), padding)
    net = net_of([up], [x])
    (found,), (wanted,) = (Session(net, backend=b, cache=None).run([x]) for b in ("compiled", "reference"))
    np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)


@together(
    ("size", [(4,), (2, 3), (3, 2), (2, 2, 2), (3, 1, 4)]),
    ("batch", [1, 2, 3]),
    ("kernel", [2, 3, 4]),
    ("stride", [1, 2]),
    ("padding", [0, 1, 2]),
    ("dilation", [1, 2]),
    ("has_bias", [False, True]),
)
def test_convolutions_of_many_weights_to_a_few_pixels(
    size: tuple[int, ...], batch: int, kernel: int, stride: int, padding: int, dilation: int, has_bias: bool
) -> None:
    rank, reach = len(size), dilation * (kernel - 1)
    padding = padding if all(n + 2 * padding > reach for n in size) else reach
    outputs = 600_000 // (16 * kernel**rank)
    given = {key: (value,) * rank for key, value in (("stride", stride), ("padding", padding), ("dilation", dilation))}
    layer = op(
        f"nn.Conv{rank}d", "conv", "0", "1", in_channels=16, out_channels=outputs, kernel_size=(kernel,) * rank,
        groups=1, padding_mode="zeros", weight=random(outputs, 16, *(kernel,) * rank),
        bias=random(outputs) if has_bias else False, **given,
    )  # fmt: skip
    check([random(batch, 16, *size)], layer, AFTER, tolerance=TOLERANCE)
