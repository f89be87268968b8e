"""Rearranging operators: what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Annotations, TensorSpec, registry
from engine.errors import ShapeError
from engine.layers import bind
from tests.engine.layers.refusals import build, refusal, tensor

X = tensor(2, 3, 4)
V = tensor(5)

REFUSALS: list[tuple[str, tuple[object, ...], dict[str, Any], str]] = [
    ("Tensor.reshape", (X,), {"shape": (5, 5)}, "the elements do not fit: found [2, 3, 4] into [5, 5]"),
    ("Tensor.reshape", (X,), {"shape": (-1, 5)}, "the elements do not fit: found [2, 3, 4] into [-1, 5]"),
    (
        "Tensor.reshape",
        (X,),
        {"shape": (-2, 12)},
        "not a shape: found [-2, 12], expected dimensions >= 0 and at most one -1",
    ),
    ("Tensor.reshape_as", (X, V), {}, "the elements do not fit: found [2, 3, 4] into [5]"),
    ("torch.flatten", (X,), {"start_dim": 2, "end_dim": 0}, "start_dim comes after end_dim: found 2 and 0"),
    ("torch.flatten", (X,), {"start_dim": 3}, "dim is out of range: found 3, expected -3 to 2"),
    ("Tensor.unflatten", (X,), {"dim": 2, "sizes": (3, 2)}, "the elements do not fit: found [4] into [3, 2]"),
    (
        "torch.roll",
        (tensor(),),
        {"shifts": (1,), "dims": (0,)},
        "a 0-dim tensor has no dimension to roll: found [0]",
    ),
    ("torch.squeeze", (X,), {"dim": 3}, "dim is out of range: found 3, expected -3 to 2"),
    ("torch.unsqueeze", (X,), {"dim": 4}, "dim is out of range: found 4, expected -4 to 3"),
    ("torch.unsqueeze", (X,), {"dim": (0, 0)}, "a dim is given twice: found [0, 0]"),
    (
        "torch.as_strided",
        (V,),
        {"size": (3, 3), "stride": (2, 1)},
        "strides reach past the last element: found element 6, expected below 5",
    ),
    ("torch.as_strided", (V,), {"size": (3,), "stride": (1, 1)}, "size and stride do not fit: found [3] and [1, 1]"),
    ("torch.as_strided", (V,), {"size": (3,), "stride": (-1,)}, "size and stride do not fit: found [3] and [-1]"),
    ("Tensor.expand", (X,), {"sizes": (3, 4)}, "cannot expand: found [2, 3, 4], expected [3, 4]"),
    (
        "Tensor.expand",
        (X,),
        {"sizes": (2, 3, 5)},
        "only a dimension of size 1 can be expanded: found 4, expected 1 or 5",
    ),
    ("Tensor.expand", (X,), {"sizes": (-1, 2, 3, 4)}, "cannot expand: found [2, 3, 4], expected [-1, 2, 3, 4]"),
    ("Tensor.expand_as", (X, V), {}, "cannot expand: found [2, 3, 4], expected [5]"),
    ("Tensor.repeat", (X,), {"sizes": (2, 2)}, "too few repeats: found 2, expected one for each of 3 dimensions"),
    ("Tensor.repeat", (X,), {"sizes": (2, 2, -1)}, "repeats must not be negative: found [2, 2, -1]"),
    ("torch.tile", (X,), {"dims": (-1,)}, "repeats must not be negative: found [1, 1, -1]"),
    ("torch.repeat_interleave", (X,), {"repeats": -1, "dim": 0}, "repeats must not be negative: found -1"),
    (
        "torch.repeat_interleave",
        (X, tensor(2, dtype="int64")),
        {"dim": 1},
        "repeats do not fit: found [2], expected a number or [3]",
    ),
    ("torch.repeat_interleave", (X,), {"repeats": 1, "dim": 3}, "dim is out of range: found 3, expected -3 to 2"),
    ("Tensor.permute", (X,), {"dims": (0, 1)}, "a permutation must name every dim once: found [0, 1], expected 3 dims"),
    ("Tensor.permute", (X,), {"dims": (0, 1, 1)}, "a dim is given twice: found [0, 1, 1]"),
    ("Tensor.permute", (X,), {"dims": (0, 1, 3)}, "dim is out of range: found 3, expected -3 to 2"),
    ("torch.transpose", (X,), {"dim0": 0, "dim1": 3}, "dim is out of range: found 3, expected -3 to 2"),
    ("torch.t", (X,), {}, "only matrices can be transposed with t(): found 3 dimensions, expected 2"),
    ("aten::mT", (V,), {}, "a matrix is needed: found 1 dimensions, expected at least 2"),
    ("torch.flip", (X,), {"dims": (0, 0)}, "a dim is given twice: found [0, 0]"),
    ("torch.roll", (X,), {"shifts": (1, 2), "dims": (0,)}, "shifts and dims differ in length: found 2, expected 1"),
    ("torch.roll", (X,), {"shifts": (1,), "dims": (5,)}, "dim is out of range: found 5, expected -3 to 2"),
    ("aten::movedim", (X, 0, (1, 2)), {}, "source and destination differ in length: found 1 and 2"),
    ("aten::rot90", (X, 1, (0,)), {}, "a rotation needs a plane: found [0], expected two dims"),
    ("aten::rot90", (X, 1, (0, 0)), {}, "a dim is given twice: found [0, 0]"),
]


@pytest.mark.parametrize(("type", "operands", "params", "message"), REFUSALS)
def test_what_does_not_fit_is_refused(
    type: str, operands: tuple[object, ...], params: dict[str, Any], message: str
) -> None:
    assert refusal(type, *operands, **params) == message


F32 = np.dtype(np.float32)


@pytest.mark.parametrize(
    ("input", "shape", "result"),
    [
        ((None, 3, 4), (-1, 12), (None, 12)),
        ((None, 3, 4), (2, 3, 2, 2), (2, 3, 2, 2)),
        ((2, None, 4), (2, -1), (2, None)),
        ((0, None), (3, -1), (3, 0)),
        ((6, 4), (None, 8), (3, 8)),
    ],
)
def test_reshape_works_out_what_is_known(
    input: tuple[int | None, ...], shape: tuple[int | None, ...], result: tuple[int | None, ...]
) -> None:
    layer = registry["Tensor.reshape"].layer(shape=shape)  # type: ignore[call-arg]
    assert layer.infer(TensorSpec(input, F32)) == TensorSpec(result, F32)


def several_open(shape: tuple[int, ...], note: tuple[int | None, ...], *input: int) -> tuple[int, ...]:
    annotations = Annotations(outputs=(TensorSpec(note, F32),))
    layer = bind(
        registry["Tensor.reshape"], n_inputs=1, params={"shape": shape}, attributes={}, annotations=annotations
    )
    return tuple(layer.forward([np.zeros(input)]).shape)


@pytest.mark.parametrize(
    ("shape", "note"),
    [
        ((-1, -1), None),
        ((-1, -1), (2, 12)),
        ((-1, -1), (None, 12, 1)),
        ((-1, 2, -1), None),
        ((0, -1), None),
        ((0, -1), (2, 12, 1)),
        ((0, 3, 4), None),
    ],
)
def test_what_the_file_does_not_announce_is_read_as_pytorch_reads_it(
    shape: tuple[int, ...], note: tuple[int | None, ...] | None
) -> None:
    annotations = Annotations(outputs=(None if note is None else TensorSpec(note, F32),))
    layer = registry["Tensor.reshape"].layer(shape=shape, annotations=annotations)  # type: ignore[call-arg]
    with pytest.raises(ShapeError):
        layer.infer(TensorSpec((2, 3, 4), F32))
    with pytest.raises(ShapeError):
        layer.forward(np.zeros((2, 3, 4)))


def test_a_zero_where_the_file_announces_the_result_is_the_inputs_own_dimension() -> None:
    annotations = Annotations(outputs=(TensorSpec((None, 3, 1), F32),))
    layer = registry["Tensor.reshape"].layer(shape=(0, 3, 1), annotations=annotations)  # type: ignore[call-arg]
    assert layer.infer(TensorSpec((None, 3), F32)) == TensorSpec((None, 3, 1), F32)


@pytest.mark.parametrize(
    ("shape", "note", "input", "result"),
    [
        ((-1, 3, -1), (None, 3, None), (5, 3, 2, 2), (5, 3, 4)),
        ((-1, 2, 2, -1), (None, 2, 2, None), (3, 4, 7), (3, 2, 2, 7)),
        ((2, -1, 3, -1, -1), (2, None, 3, None, None), (2, 12, 5, 7), (2, 4, 3, 5, 7)),
        ((-1, -1, 6), (4, None, 6), (2, 4, 9), (4, 3, 6)),
    ],
)
def test_several_dynamic_dimensions_are_settled(
    shape: tuple[int, ...], note: tuple[int | None, ...], input: tuple[int, ...], result: tuple[int, ...]
) -> None:
    assert several_open(shape, note, *input) == result


def test_dynamic_dimensions_nothing_settles_are_refused() -> None:
    with pytest.raises(ShapeError) as caught:
        several_open((3, -1, 2, -1, 5), (3, None, 2, None, 5), 6, 10, 15)
    assert str(caught.value) == "more than one dimension is unknown: found [3, -1, 2, -1, 5], expected one -1 at most"


def test_negative_counts_are_refused_when_they_arrive() -> None:
    with pytest.raises(ShapeError) as caught:
        build("torch.repeat_interleave", 2, dim=0).forward([np.zeros((2, 3)), np.array([1, -1])])
    assert str(caught.value) == "repeats must not be negative: found -1"


@pytest.mark.parametrize("dtype", ["uint8", "uint64", "int32"])
def test_numbers_of_repetitions_are_of_any_integer_dtype(dtype: str) -> None:
    layer = build("torch.repeat_interleave", 2, dim=0)
    found = layer.forward([np.arange(2), np.array([2, 1], dtype)])
    assert found.tolist() == [0, 0, 1]
