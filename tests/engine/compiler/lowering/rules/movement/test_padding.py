"""Padding as copies, and as the border of an image: the reference's answers, to the bit where nothing is computed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import RuntimeGraph, Session
from tests.engine.graph.build import F32, INPUT, built, conv, op

RANDOM = np.random.default_rng(5)


def kernels_of(net: RuntimeGraph, shape: tuple[int, ...], rtol: float = 0.0) -> dict[str, str]:
    """Return how the operators ran, after two runs with the reference's answer: borders stay clean."""
    x = RANDOM.standard_normal(shape).astype(F32)
    session = Session(net, backend="compiled", cache=None)
    wanted = Session(net, backend="reference").run([x])
    for _ in range(2):
        for mine, theirs in zip(session.run([x]), wanted, strict=True):
            assert mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol * np.abs(theirs).max() if rtol else 0)
    return {row["name"]: row["kernel"] for row in session.describe()["operators"] if "kernel" in row}


@given(
    st.lists(st.sampled_from([1, 2, 3, 17]), min_size=1, max_size=4),
    st.sampled_from(["constant", "reflect", "replicate", "circular"]),
    st.data(),
)
def test_every_mode_pads_as_the_reference_does(shape: list[int], mode: str, data: st.DataObject) -> None:
    axes = data.draw(st.integers(1, len(shape)))
    pad: list[int] = []
    for size in shape[: -axes - 1 : -1]:
        most = {"reflect": size - 1, "circular": size}.get(mode, 5)
        least = 0 if mode != "constant" else -((size - 1) // 2)
        pad += [data.draw(st.integers(least, most)), data.draw(st.integers(least, most))]
    value = data.draw(st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("-inf")])) if mode == "constant" else None
    net = built(
        INPUT, op("F.pad", "pad", "0", "1", pad=tuple(pad), mode=mode, value=value), op("pnnx.Output", "out", "1"),
        _0=tuple(shape),
    )  # fmt: skip
    assert kernels_of(net, tuple(shape))["pad"] in ("map", "removed", "view")


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_a_convolution_of_that_padding_mode_has_a_kernel(mode: str) -> None:
    net = built(
        INPUT, conv("conv", "0", "1", (3, 20), padding=(1, 1), padding_mode=mode), op("pnnx.Output", "out", "1"),
        _0=(2, 3, 5, 7),
    )  # fmt: skip
    assert kernels_of(net, (2, 3, 5, 7), 1e-5)["conv"] != "reference"


def test_zeros_on_one_side_of_an_image_are_its_border() -> None:
    net = built(
        INPUT,
        conv("first", "0", "1", (3, 20), padding=(1, 1)),
        op("nn.ZeroPad2d", "before_conv", "1", "2", padding=(0, 1, 0, 1)),
        conv("second", "2", "3", (20, 20), stride=(2, 2), padding=(1, 1)),
        op("nn.ZeroPad2d", "before_pool", "3", "4", padding=(1, 1, 3, 2)),
        op("nn.MaxPool2d", "pool", "4", "5", kernel_size=(2, 2), stride=(2, 2), padding=(0, 0), dilation=(1, 1)),
        op("pnnx.Output", "out", "5"),
        _0=(2, 3, 9, 10),
    )
    kernels = kernels_of(net, (2, 3, 9, 10), 1e-5)
    assert (kernels["before_conv"], kernels["before_pool"]) == ("view", "view")


def test_an_image_padded_for_one_user_is_the_same_for_the_others() -> None:
    net = built(
        INPUT,
        conv("first", "0", "1", (3, 7)),
        op("nn.ZeroPad2d", "pad", "1", "2", padding=(2, 1, 0, 3)),
        conv("second", "2", "3", (7, 5)),
        op("nn.ReLU", "relu", "1", "4"),
        op("F.pad", "again", "2", "5", pad=(1, 0, 1, 0), mode="constant", value=0),
        op("nn.MaxPool2d", "pool", "5", "6", kernel_size=(2, 2), stride=(1, 1), padding=(0, 0), dilation=(1, 1)),
        *(op("pnnx.Output", f"out_{name}", name) for name in "23456"),
        _0=(1, 3, 8, 6),
    )
    kernels_of(net, (1, 3, 8, 6), 1e-5)


def test_a_stride_with_the_padding_same_has_a_kernel() -> None:
    net = built(
        INPUT, conv("conv", "0", "1", (3, 20), stride=(2, 2), padding="same"), op("pnnx.Output", "out", "1"),
        _0=(1, 3, 8, 9),
    )  # fmt: skip
    assert kernels_of(net, (1, 3, 8, 9), 1e-5)["conv"] == "conv"
