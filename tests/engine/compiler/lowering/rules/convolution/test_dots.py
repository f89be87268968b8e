"""Convolutions and linear layers to few channels: against the reference, between guard pages, of any size."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from engine import Session
from engine.pnnx import Operator
from tests.combining import together
from tests.engine.compiler.lowering.agreeing import everywhere, net_of
from tests.engine.graph.build import F32, built, op

RANDOM = np.random.default_rng(12)
TOLERANCE = 1e-5
AFTER = op("nn.Sigmoid", "after", "1", "2")


def random(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(F32)


def conv(
    inputs: int,
    outputs: int,
    kernel: tuple[int, ...],
    *,
    stride: int = 1,
    padding: int | str = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Operator:
    """Make a convolution of so many channels a group, its weights small enough that sums stay near 1."""
    rank, fan_in = len(kernel), inputs * math.prod(kernel)
    return op(
        f"nn.Conv{rank}d", "conv", "0", "1", in_channels=groups * inputs, out_channels=groups * outputs,
        kernel_size=kernel, groups=groups, padding_mode="zeros", stride=(stride,) * rank, dilation=(dilation,) * rank,
        padding=padding if isinstance(padding, str) else (padding,) * rank,
        weight=random(groups * outputs, inputs, *kernel) * fan_in**-0.5, bias=random(groups * outputs),
    )  # fmt: skip


@together(
    ("kernel", [(1,), (5,), (1, 1), (3, 3), (2, 4), (2, 3, 3), (3, 1, 2)]),
    ("inputs", [1, 19, 32]),
    ("outputs", [1, 2, 3, 6]),
    ("stride", [1, 2]),
    ("padding", [0, 1]),
    ("dilation", [1, 2]),
    ("batch", [(), (1,), (2,)]),
    ("groups", [1, 2, 5]),
)
def test_convolutions_to_few_channels(
    kernel: tuple[int, ...],
    inputs: int,
    outputs: int,
    stride: int,
    padding: int,
    dilation: int,
    batch: tuple[int, ...],
    groups: int,
) -> None:
    layer = conv(inputs, outputs, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups)
    everywhere([random(*batch, groups * inputs, *(9, 7, 8)[: len(kernel)])], layer, AFTER, tolerance=TOLERANCE)


@together(
    ("kernel", [(9, 1), (20, 2), (33, 3), (12, 11)]),
    ("size", [(40, 3), (35, 20)]),
    ("outputs", [1, 2, 4]),
    ("stride", [1, 3]),
    ("padding", [0, 2, 11]),
    ("batch", [(), (1,), (2,)]),
)
def test_tall_filters_of_one_channel(
    kernel: tuple[int, int],
    size: tuple[int, int],
    outputs: int,
    stride: int,
    padding: int,
    batch: tuple[int, ...],
) -> None:
    padding = max(padding, -(-max(0, *(k - n for k, n in zip(kernel, size, strict=True))) // 2))
    layer = conv(1, outputs, kernel, stride=stride, padding=padding)
    everywhere([random(*batch, 1, *size)], layer, AFTER, tolerance=TOLERANCE)


@pytest.mark.parametrize("after", ["softmax", "map", "conv"])
def test_what_follows_an_image_whose_rows_are_columns(after: str) -> None:
    """A signal is seen as an image: its taps and those of the result are contiguous."""
    following = {
        "softmax": [op("nn.Softmax", "softmax", "3", "4", dim=1)],
        "map": [op("pnnx.Expression", "mask", "3 2", "4", expr="mul(tanh(@0),@1)")],
        "conv": [replace(conv(2, 5, (3, 3)), name="next", inputs=("3",), outputs=("4",))],
    }
    signals = replace(conv(6, 40, (3,), padding=1), name="signals", inputs=("0",), outputs=("1",))
    seen = op("torch.unsqueeze", "seen", "1", "2", dim=1)
    tall = replace(conv(1, 2, (21, 1), padding=10), inputs=("2",), outputs=("3",))
    x = random(1, 6, 23)
    cut = op("Tensor.slice", "cut", "3", "5", dim=3, start=10, end=33, step=1)
    shaped = [
        replace(each, inputs=tuple("5" if name == "3" else name for name in each.inputs)) for each in following[after]
    ]
    everywhere([x], signals, seen, tall, cut, *shaped, tolerance=TOLERANCE)


@pytest.mark.parametrize("rows", [(), (1,), (50,), (2, 3, 5)])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (37, 1), (64, 3), (300, 6)])
def test_linear_layers_to_few_columns(rows: tuple[int, ...], inputs: int, outputs: int) -> None:
    layer = op(
        "nn.Linear", "linear", "0", "1", in_features=inputs, out_features=outputs, bias=random(outputs),
        weight=random(outputs, inputs),
    )  # fmt: skip
    everywhere([random(*rows, inputs)], layer, AFTER, tolerance=TOLERANCE)


@pytest.mark.parametrize("kernel", [(3, 3), (13, 1)])
def test_what_is_not_finite_reaches_the_pixels_whose_taps_meet_it(kernel: tuple[int, int]) -> None:
    inputs = 1 if kernel[1] == 1 else 21
    x = random(1, inputs, 17, 9)
    x[0, 0, 3, 4], x[0, -1, 12, 1], x[0, 0, 16, 8] = np.inf, np.nan, -np.inf
    everywhere([x], conv(inputs, 2, kernel, padding=1), tolerance=TOLERANCE)


@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "kind"),
    [(64, 3, (9, 9), "dots"), (64, 1, (1, 1), "dots"), (1, 2, (201, 1), "dots"), (64, 32, (1, 1), "conv")],
)
def test_vectors_run_along_the_sums_of_few_channels(
    inputs: int, outputs: int, kernel: tuple[int, int], kind: str
) -> None:
    x = random(1, inputs, 200, 9)
    net = net_of([conv(inputs, outputs, kernel, padding="same")], [x])
    session = Session(net, backend="compiled", cache=None, threads=1)
    session.run([x])
    (row,) = (each for each in session.describe()["operators"] if each["name"] == "conv")
    assert row["kernel"] == kind


@pytest.mark.parametrize("kernel", [(3, 3), (11, 1)])
def test_images_of_any_size(kernel: tuple[int, int]) -> None:
    inputs = 24 if kernel[1] == 3 else 1
    ends = op("pnnx.Input", "in", "", "0"), op("pnnx.Output", "out", "1")
    net = built(ends[0], conv(inputs, 2, kernel, padding=1), ends[1], _0=(None, inputs, None, None))
    compiled, reference = (Session(net, backend=each, cache=None) for each in ("compiled", "reference"))
    for batch, height, width in [(1, 20, 20), (1, 31, 17), (2, 20, 64), (1, 33, 5), (3, 9, 9)] * 3:
        x = random(batch, inputs, height, width)
        (found,), (wanted,) = (each.run([x]) for each in (compiled, reference))
        np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE * np.abs(wanted).max())
