"""Inputs that a graph takes as they are, beside the check that converts or refuses all others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from engine.errors import InputError
from engine.graph.port import Port
from engine.graph.running.feeding import PlainInputs, feed, feed_specs
from engine.tensor import TensorSpec

F32, I64 = np.dtype(np.float32), np.dtype(np.int64)
PORTS = (
    Port(
        name="x", operand="0", spec=TensorSpec((1, 3, None), F32), aliases=("in0",), size_names=(None, None, "length")
    ),
    Port(name="mask", operand="1", spec=TensorSpec((None, None), I64), size_names=("batch", "length")),
)


def tensor(*shape: int, dtype: np.dtype[Any] = F32) -> np.ndarray:
    return np.zeros(shape, dtype)


class Subclass(np.ndarray):
    pass


X, MASK = tensor(1, 3, 5), tensor(2, 5, dtype=I64)


@pytest.mark.parametrize(
    "given",
    [[X, MASK], (X, MASK), {"x": X, "mask": MASK}, {"mask": MASK, "x": X}],
    ids=["list", "tuple", "dict", "turned"],
)
def test_arrays_of_the_graphs_dtypes_and_sizes_are_taken_in_its_order(given: Any) -> None:
    found = PlainInputs(PORTS).of(given)
    assert found is not None
    assert [id(each) for each in found] == [id(X), id(MASK)] == [id(each) for each in feed(PORTS, given)]


@pytest.mark.parametrize(
    "given",
    [
        [X, tensor(2, 6, dtype=I64)],  # another size under the same name
        [tensor(1, 4, 5), MASK],
        [tensor(1, 3, 5, 1), MASK],
        [tensor(1, 3, 5, dtype=np.dtype(np.float64)), MASK],
        [X],
        [X, MASK, MASK],
        {"x": X},
        {"x": X, "other": MASK},
        X,
        None,
        "no tensors",
    ],
    ids=str,
)
def test_inputs_that_are_refused_are_not_taken(given: Any) -> None:
    assert PlainInputs(PORTS).of(given) is None
    with pytest.raises(InputError):
        feed(PORTS, given)


@pytest.mark.parametrize(
    "given",
    [
        [tensor(4, 3, 5), MASK],  # another batch than the file's
        [X.tolist(), MASK],
        [X.astype(">f4"), MASK],
        [X.view(Subclass), MASK],
        {"in0": X, "mask": MASK},
    ],
    ids=["batch", "numbers", "other bytes", "subclass", "alias"],
)
def test_inputs_that_have_to_be_converted_are_left_to_the_check(given: Sequence[Any] | Mapping[str, Any]) -> None:
    assert PlainInputs(PORTS).of(given) is None
    assert len(feed(PORTS, given)) == 2


def test_an_input_of_unknown_shape_or_of_texts_is_left_to_the_check() -> None:
    for spec in (None, TensorSpec((None,), np.dtype(np.object_))):
        port = Port(name="x", operand="0", spec=spec)
        assert PlainInputs([port]).of([np.array(["a"], np.object_)]) is None


def test_a_graph_without_inputs_takes_none() -> None:
    assert PlainInputs([]).of([]) == []


@pytest.mark.parametrize("dtype", [F32, np.float32, "float32", "torch.float", "f32"], ids=str)
@pytest.mark.parametrize("size", [5, np.int64(5), None])
def test_specs_take_every_name_of_a_dtype(dtype: Any, size: Any) -> None:
    x, mask = TensorSpec([1, 3, size], dtype), TensorSpec((2, size), np.int64)  # type: ignore[arg-type]
    expected = [TensorSpec((1, 3, size), F32), TensorSpec((2, size), I64)]
    assert feed_specs(PORTS, [x, mask]) == feed_specs(PORTS, {"mask": mask, "in0": x}) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([TensorSpec((1, 3, 5), F32)], "wrong number of inputs: found 1, expected 2 (x, mask)"),
        (TensorSpec((1, 3, 5), F32), "inputs are neither a sequence nor a mapping: found TensorSpec"),
        ([(1, 3, 5), (2, 5)], "input 'x': not a TensorSpec: found tuple"),
        ([X, MASK], "input 'x': not a TensorSpec: found ndarray"),
        ([TensorSpec((1, -3, 5), F32)] * 2, "input 'x': not a shape: found (1, -3, 5), expected sizes, None for"),
        ([TensorSpec((1, 3.0, 5), F32)] * 2, "input 'x': not a shape: found (1, 3.0, 5), expected"),  # type: ignore[arg-type]
        ([TensorSpec(3, F32)] * 2, "input 'x': not a shape: found 3, expected"),  # type: ignore[arg-type]
        ([TensorSpec((1,), None)] * 2, "input 'x': unknown dtype: found None, expected a numpy dtype"),  # type: ignore[arg-type]
        ([TensorSpec((1,), "floaty")] * 2, "input 'x': unknown dtype: found 'floaty', expected a numpy dtype"),  # type: ignore[arg-type]
    ],
)
def test_what_describes_no_inputs_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        feed_specs(PORTS, given)
