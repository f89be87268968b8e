"""Tensors from parameters, numbers and quantisation: what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.errors import EngineError
from tests.engine.layers.refusals import build, refusal, tensor

X = tensor(2, 3, 4)
V = tensor(5)
S = tensor()
M = tensor(3, 4)

REFUSALS: list[tuple[str, tuple[object, ...], dict[str, Any], str]] = [
    # creation
    ("torch.zeros", (), {"size": (2, -1)}, "size must not be negative: found [2, -1]"),
    (
        "torch.zeros",
        (),
        {"size": (2,), "dtype": "torch.quaternion"},
        "parameter 'dtype': unknown dtype: found 'torch.quaternion', expected a torch dtype such as torch.float",
    ),
    (
        "torch.arange",
        (),
        {"start": 0, "end": 5, "step": 0},
        "step does not lead from start to end: found arange(0, 5, 0)",
    ),
    (
        "torch.arange",
        (),
        {"start": 5, "end": 0, "step": 1},
        "step does not lead from start to end: found arange(5, 0, 1)",
    ),
    (
        "torch.arange",
        (),
        {"end": "five"},
        "an operand is neither a tensor nor a number: found 'five', expected a tensor or a number",
    ),
    ("aten::meshgrid", ([M, V], "ij"), {}, "a grid is made of vectors: found [3, 4], expected [n]"),
    ("aten::meshgrid", ([V, V], "yx"), {}, "unknown indexing: found yx, expected ij or xy"),
    ("aten::one_hot", (M, 4), {}, "class indices must be integers: found float32"),
    # numbers
    ("Tensor.size", (X,), {"dim": 3}, "dim is out of range: found 3, expected -3 to 2"),
    ("Tensor.size", (S,), {"dim": 0}, "a 0-dim tensor has no dimensions: found dim 0"),
    ("aten::Int", ("a",), {}, "not a number: found 'a'"),
    ("aten::Int", ([1],), {}, "not a number: found [1]"),
    ("aten::len", (S,), {}, "a 0-dim tensor has no slices to count"),
    ("aten::__getitem__", ([1, 2], 2), {}, "the index of an item is out of range: found item 2 of list"),
    # quantise
    (
        "aten::quantize_per_tensor",
        (X, 0.1, 0, 6),
        {},
        "cannot quantise: found float32 with scale 0.1, expected qint8, quint8 or qint32 and a positive scale",
    ),
    (
        "aten::quantize_per_tensor",
        (X, 0.0, 0, 12),
        {},
        "cannot quantise: found int8 with scale 0.0, expected qint8, quint8 or qint32 and a positive scale",
    ),
    ("aten::fake_quantize_per_channel_affine", (M, V, V, 0, 0, 255), {}, "scale does not fit: found [5], expected [3]"),
]


@pytest.mark.parametrize(("type", "operands", "params", "message"), REFUSALS)
def test_what_does_not_fit_is_refused(
    type: str, operands: tuple[object, ...], params: dict[str, Any], message: str
) -> None:
    assert refusal(type, *operands, **params) == message


@pytest.mark.parametrize(
    ("type", "operands", "message"),
    [
        ("aten::one_hot", (np.array([4]), 4), "class out of range: found 4 to 4, expected 0 to 3"),
        (
            "torch.dequantize",
            (np.zeros(3),),
            "input is not quantised: found float64, expected a result of torch.quantize_per_tensor",
        ),
        ("aten::Int", (np.zeros(3),), "only a tensor with one element converts to a number: found [3]"),
        ("aten::poisson", (np.array([-1.0]), None), "rates must not be negative: found -1.0"),
        (
            "aten::multinomial",
            (np.zeros(3), 1, False, None),
            "weights must be finite, not negative and not all 0",
        ),
        ("aten::multinomial", (np.ones(3), 4, False, None), "num_samples is out of range: found 4, expected 1 to 3"),
    ],
)
def test_values_out_of_range_are_refused_when_they_arrive(
    type: str, operands: tuple[object, ...], message: str
) -> None:
    with pytest.raises(EngineError) as caught:
        build(type, len(operands)).forward(operands)
    assert str(caught.value) == message
