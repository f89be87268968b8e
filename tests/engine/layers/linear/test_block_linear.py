"""Linear maps with weights in blocks: what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import TensorSpec
from engine.layers.linear.block_linear import codes_of, packed_codes
from tests.engine.layers.refusals import refusal, tensor

TYPE = "engine.BlockLinear"


def packed(*shape: int) -> TensorSpec:
    return TensorSpec(shape, np.dtype(np.uint8))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bits": 3, "block_size": 16}, "bits is not supported: found 3, expected 2, 4 or 8"),
        ({"bits": 4, "block_size": 0}, "block_size does not fit: found 0, expected blocks of whole bytes"),
        ({"bits": 4, "block_size": 3}, "block_size does not fit: found 3, expected blocks of whole bytes"),
    ],
)
def test_parameters_are_checked(parameters: dict[str, Any], message: str) -> None:
    assert refusal(TYPE, tensor(3, 32), packed(5, 2, 8), tensor(5, 2), **parameters) == message


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        (
            [tensor(3, 33), packed(5, 2, 8), tensor(5, 2)],
            "input does not fit the weight: found [3, 33] by [5, 2, 8], expected [..., I] by [O, ceil(I / 16), 8]",
        ),
        (
            [tensor(3, 32), packed(5, 2, 16), tensor(5, 2)],
            "input does not fit the weight: found [3, 32] by [5, 2, 16], expected [..., I] by [O, ceil(I / 16), 8]",
        ),
        (
            [tensor(), packed(5, 2, 8), tensor(5, 2)],
            "input does not fit the weight: found [] by [5, 2, 8], expected [..., I] by [O, ceil(I / 16), 8]",
        ),
        ([tensor(3, 32), tensor(5, 2, 8), tensor(5, 2)], "weight is not packed: found float32, expected uint8"),
        ([packed(3, 32), packed(5, 2, 8), tensor(5, 2)], "input is not a float tensor: found uint8, expected floats"),
        (
            [tensor(3, 32), packed(5, 2, 8), tensor(5)],
            "scales does not fit the weight: found [5], expected [5, 2]",
        ),
        (
            [tensor(3, 32), packed(5, 2, 8), tensor(5, 2), packed(5, 1)],
            "zero_points does not fit the weight: found [5, 1], expected [5, 2]",
        ),
        (
            [tensor(3, 32), packed(5, 2, 8), tensor(5, 2), packed(5, 2), tensor(1)],
            "bias does not fit the weight: found [1], expected [5]",
        ),
    ],
)
def test_operands_are_checked(operands: list[TensorSpec], message: str) -> None:
    assert refusal(TYPE, *operands, bits=4, block_size=16) == message


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_packing_is_reversed(bits: int) -> None:
    codes = np.arange(48, dtype=np.uint8).reshape(2, 3, 8) & ((1 << bits) - 1)
    np.testing.assert_array_equal(codes_of(packed_codes(codes, bits), bits), codes)


def test_the_first_code_is_in_the_lowest_bits() -> None:
    assert packed_codes(np.array([1, 2, 3, 15], np.uint8), 4).tolist() == [0x21, 0xF3]
