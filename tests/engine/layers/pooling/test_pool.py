"""Pools: what they refuse, and how many results they give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine import Annotations, TensorSpec, registry
from engine.layers import bind
from tests.engine.layers.refusals import build, refusal, tensor

IMAGE = tensor(1, 2, 5, 5)
VALUES, INDICES = tensor(1, 2, 2, 2), tensor(1, 2, 2, 2, dtype="int64")


@pytest.mark.parametrize(
    ("type", "params", "message"),
    [
        ("nn.MaxPool2d", {}, "parameter 'kernel_size' is missing"),
        (
            "nn.MaxPool2d",
            {"kernel_size": (2,) * 3},
            "kernel_size does not fit: found [2, 2, 2], expected 2 numbers, at least 1",
        ),
        ("nn.MaxPool2d", {"kernel_size": 0}, "kernel_size does not fit: found [0], expected 2 numbers, at least 1"),
        (
            "nn.MaxPool2d",
            {"kernel_size": 2, "stride": (0, 1)},
            "stride does not fit: found [0, 1], expected 2 numbers, at least 1",
        ),
        (
            "nn.MaxPool2d",
            {"kernel_size": 2, "dilation": 0},
            "dilation does not fit: found [0], expected 2 numbers, at least 1",
        ),
        (
            "nn.MaxPool2d",
            {"kernel_size": 3, "padding": 3},
            "padding is at least as large as a window: found padding [3, 3], expected window [3, 3]",
        ),
        (
            "nn.AvgPool2d",
            {"kernel_size": 3, "return_indices": False},
            "unknown parameter 'return_indices', expected ceil_mode, count_include_pad, dilation, divisor_override, "
            "input, kernel_size, padding, stride",
        ),
        ("F.avg_pool2d", {"kernel_size": 3, "divisor_override": 0}, "divisor_override must not be zero: found 0"),
        (
            "nn.MaxPool2d",
            {"kernel_size": 6},
            "the input is smaller than the window: found size 5, padded 5, expected at least 6",
        ),
        ("nn.MaxPool3d", {"kernel_size": 2}, None),
        (
            "nn.MaxPool1d",
            {"kernel_size": 2},
            "input has the wrong number of dimensions: found [1, 2, 5, 5], expected 2 or, with a batch, 3",
        ),
        ("nn.LPPool2d", {"kernel_size": 2}, "parameter 'norm_type' is missing"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(type: str, params: dict[str, Any], message: str | None) -> None:
    if message is None:  # four dimensions are a volume without a batch
        assert build(type, 1, **params).infer([IMAGE]) == tensor(1, 1, 2, 2)
    else:
        assert refusal(type, IMAGE, **params) == message


def test_complex_input_is_refused() -> None:
    message = refusal("F.max_pool2d", tensor(1, 2, 5, 5, dtype="complex64"), kernel_size=2)
    assert message == "operand 'input' has the wrong dtype: found complex64, expected floating or integer"


def returned(outputs: tuple[TensorSpec | None, ...], input: TensorSpec | None = IMAGE, **params: Any) -> Any:
    annotations = Annotations(inputs=(input,), outputs=outputs)
    layer = bind(
        registry["nn.MaxPool2d"],
        n_inputs=1,
        params={"kernel_size": 2, **params},
        attributes={},
        annotations=annotations,
    )
    return layer.infer([input or IMAGE])


@pytest.mark.parametrize(
    ("outputs", "return_indices", "expected"),
    [
        ((VALUES,), False, VALUES),
        ((VALUES,), True, VALUES),
        ((INDICES,), False, INDICES),
        ((VALUES, INDICES), True, (VALUES, INDICES)),
        ((None, None), True, (VALUES, INDICES)),
        ((None,), False, VALUES),
        ((None,), True, (VALUES, INDICES)),
    ],
)
def test_the_files_outputs_decide_what_a_maximum_pool_returns(
    outputs: tuple[TensorSpec | None, ...], return_indices: bool, expected: object
) -> None:
    assert returned(outputs, return_indices=return_indices) == expected


def test_integers_pooled_to_integers_are_values() -> None:
    integers = replace(IMAGE, dtype=INDICES.dtype)
    assert returned((INDICES,), input=integers) == INDICES


def test_dynamic_dimensions_stay_dynamic() -> None:
    layer = build("nn.AvgPool2d", 1, kernel_size=(2, 3), stride=2, ceil_mode=True)
    assert layer.infer([TensorSpec((None, 3, None, 8), IMAGE.dtype)]) == TensorSpec((None, 3, None, 4), IMAGE.dtype)


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        (tensor(1, 2, 5, 5), "indices have the wrong dtype: found float32, expected int64"),
        (tensor(1, 2, 5, 4, dtype="int64"), "indices do not fit: found [1, 2, 5, 4], expected [1, 2, 5, 5]"),
        (tensor(2, 5, 5, dtype="int64"), "indices do not fit: found [2, 5, 5], expected [1, 2, 5, 5]"),
    ],
)
def test_indices_that_do_not_fit_are_refused(indices: TensorSpec, message: str) -> None:
    assert refusal("nn.MaxUnpool2d", IMAGE, indices, kernel_size=2) == message


def test_an_index_outside_the_result_is_refused() -> None:
    layer = build("nn.MaxUnpool2d", 2, kernel_size=2)
    with pytest.raises(ValueError) as error:
        layer.forward([np.zeros((1, 2, 2)), np.array([[[0, 15], [16, 3]]])])
    assert str(error.value) == "an index is out of range: found 0 to 16, expected 0 to 15"


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        (
            (IMAGE, [2, 2], [5, 2], tensor(1, 2, 2)),
            "the input is too small: found size 5, expected at least 6",
        ),
        (
            (IMAGE, [2, 2], [2, 2], tensor(1, 3, 2)),
            "random_samples do not fit: found [1, 3, 2], expected [1, 2, 2]",
        ),
        (
            (IMAGE, [2, 2, 2], [2, 2], tensor(1, 2, 2)),
            "kernel_size does not fit: found [2, 2, 2], expected 2 numbers, at least 1",
        ),
    ],
)
def test_fractional_windows_that_do_not_fit_are_refused(operands: tuple[object, ...], message: str) -> None:
    assert refusal("aten::fractional_max_pool2d", *operands) == message
