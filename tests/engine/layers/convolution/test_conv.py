"""Convolutions: what they refuse, and what samples cannot show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import TensorSpec
from engine.layers.convolution import conv
from tests.engine.layers.refusals import build, refusal, tensor

IMAGE = tensor(1, 4, 5, 5)
WEIGHT = {"weight": tensor(6, 2, 3, 3), "bias": tensor(6)}
CONV = {"in_channels": 4, "out_channels": 6, "kernel_size": (3, 3), "groups": 2, "bias": True}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"groups": 0}, "groups must be positive: found 0"),
        ({"groups": 3}, "in_channels cannot be split into groups: found 4, expected a multiple of 3"),
        ({"stride": (1, 0)}, "stride does not fit: found [1, 0], expected 2 numbers, at least 1"),
        ({"dilation": (1, 1, 1)}, "dilation does not fit: found [1, 1, 1], expected 2 numbers, at least 1"),
        ({"padding": (-1, 0)}, "padding does not fit: found [-1, 0], expected 2 numbers, at least 0"),
        ({"padding": "full"}, "unknown padding: found full, expected numbers, same or valid"),
        (
            {"padding": "same", "stride": (2, 2), "padding_mode": "reflect"},
            "padding 'same' needs stride 1: found [2, 2]",
        ),
        (
            {"padding_mode": "mirror"},
            "unknown padding_mode: found mirror, expected zeros, reflect, replicate, circular",
        ),
        ({"kernel_size": "big"}, "parameter 'kernel_size': wrong kind of value: found 'big', expected list of int"),
        (
            {"out_channels": 8},
            "weight does not fit the parameters: found [6, 2, 3, 3], expected [8, 2, 3, 3]",
        ),
        (
            {"kernel_size": (5, 3)},
            "weight does not fit the parameters: found [6, 2, 3, 3], expected [6, 2, 5, 3]",
        ),
    ],
)
def test_contradicting_parameters_are_refused(changed: dict[str, Any], message: str) -> None:
    assert refusal("nn.Conv2d", IMAGE, attributes=WEIGHT, **{**CONV, **changed}) == message


def test_an_announced_bias_must_be_there() -> None:
    weight = {"weight": WEIGHT["weight"]}
    message = refusal("nn.Conv2d", IMAGE, attributes=weight, **CONV)
    assert message == "attribute 'bias' is missing: found bias=True without it"


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        (
            (tensor(5, 5), tensor(6, 4, 3, 3)),
            "input has the wrong number of dimensions: found [5, 5], expected 3 or, with a batch, 4",
        ),
        ((tensor(1, 3, 5, 5), tensor(6, 4, 3, 3)), "input has the wrong number of channels: found 3, expected 4"),
        ((IMAGE, tensor(6, 4, 3)), "weight has the wrong number of dimensions: found [6, 4, 3], expected 4"),
        (
            (IMAGE, tensor(6, 4, 6, 3)),
            "the input is smaller than the window: found size 5, padded 5, expected at least 6",
        ),
        ((IMAGE, tensor(6, 4, 3, 3), tensor(5)), "bias does not fit: found [5], expected [6]"),
        ((IMAGE, tensor(6, 4, 3, 0)), "kernel_size does not fit: found [3, 0], expected 2 numbers, at least 1"),
        (
            (IMAGE, tensor(6, 4, 3, 3, dtype="int64")),
            "operands have different dtypes: found float32 and int64",
        ),
        (
            (tensor(1, 4, 5, 5, dtype="bool"), tensor(6, 4, 3, 3, dtype="bool")),
            "operand 'input' has the wrong dtype: found bool, expected complex or floating or integer",
        ),
        (
            (2.5, tensor(6, 4, 3, 3)),
            "input has the wrong number of dimensions: found [], expected 3 or, with a batch, 4",
        ),
    ],
)
def test_operands_that_do_not_fit_are_refused(operands: tuple[object, ...], message: str) -> None:
    assert refusal("F.conv2d", *operands) == message


def test_a_weight_that_cannot_be_split_is_refused() -> None:
    message = refusal("F.conv2d", IMAGE, tensor(5, 2, 3, 3), groups=2)
    assert message == "weight cannot be split into groups: found [5, 2, 3, 3], expected a multiple of 2"


def test_too_much_reflection_is_refused() -> None:
    message = refusal("nn.Conv2d", IMAGE, attributes=WEIGHT, **CONV, padding=(5, 0), padding_mode="reflect")
    assert message == "too much padding for mode reflect: found 5 on size 5, expected at most 4"


def test_half_precision_weights_meet_float32_activations_in_float32() -> None:
    layer = build("F.conv2d", 2)
    assert layer.infer([IMAGE, tensor(6, 4, 3, 3, dtype="float16")]).dtype == np.float32


def test_dynamic_dimensions_stay_dynamic() -> None:
    layer = build("F.conv2d", 2, stride=(2, 2))
    result = layer.infer([TensorSpec((None, 4, None, 9), IMAGE.dtype), tensor(6, 4, 3, 3)])
    assert result == TensorSpec((None, 6, None, 4), IMAGE.dtype)


def test_flops_are_two_for_each_multiplication() -> None:
    layer = build("nn.Conv2d", 1, WEIGHT, **CONV)
    assert layer.flops(layer.infer([IMAGE]), [IMAGE]) == 2 * (6 * 3 * 3) * (2 * 3 * 3)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("sizes", [(11,), (6, 7), (3, 4, 5)])
def test_columns_made_row_by_row_give_the_same_answer(
    sizes: tuple[int, ...], groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = len(sizes)
    layer = build(f"F.conv{rank}d", 2, groups=groups, padding=(1,) * rank, stride=(2,) * rank)
    random = np.random.default_rng(0)
    operands = [random.standard_normal(shape) for shape in ((3, 4, *sizes), (8, 4 // groups, *(3,) * rank))]
    whole = layer.forward(operands)
    monkeypatch.setattr(conv, "BLOCK_BYTES", 1)
    np.testing.assert_allclose(layer.forward(operands), whole, rtol=1e-12, atol=1e-12)


TRANSPOSED = {"weight": tensor(4, 3, 3, 3), "bias": tensor(6)}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"output_padding": (1, 0)},
            "output_padding is too large: found [1, 0], expected less than stride or dilation",
        ),
        ({"padding": (3, 4)}, "the output would be empty: found size 5 becomes -1"),
        ({"out_channels": 4}, "weight does not fit the parameters: found [4, 3, 3, 3], expected [4, 2, 3, 3]"),
        ({"in_channels": 2}, "weight does not fit the parameters: found [4, 3, 3, 3], expected [2, 3, 3, 3]"),
    ],
)
def test_contradicting_transposed_parameters_are_refused(changed: dict[str, Any], message: str) -> None:
    assert refusal("nn.ConvTranspose2d", IMAGE, attributes=TRANSPOSED, **{**CONV, **changed}) == message


def test_transposed_flops_are_two_for_each_multiplication() -> None:
    layer = build("nn.ConvTranspose2d", 1, TRANSPOSED, **CONV)
    assert layer.flops(layer.infer([IMAGE]), [IMAGE]) == 2 * (4 * 5 * 5) * (3 * 3 * 3)
