"""Tests of tensors in answers."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.codec import answers
from app.codec.answers import dump_json, dump_pieces, json_tensor
from app.errors import ServiceError


def text(array: np.ndarray) -> dict[str, object]:
    answer: dict[str, object] = json.loads(dump_json(json_tensor(array)), parse_constant=pytest.fail)
    return answer


@given(arrays.arrays(st.sampled_from(["float16", "float32", "float64", "int64", "int32", "int16", "int8", "uint8"]),
                     arrays.array_shapes(min_dims=0, max_side=3)))  # fmt: skip
def test_every_real_tensor_survives_the_way_to_json_and_back(array: np.ndarray) -> None:
    answer = text(array)
    assert (answer["shape"], answer["dtype"]) == (list(array.shape), array.dtype.name)
    np.testing.assert_array_equal(np.array(answer["data"], array.dtype).reshape(array.shape), array, strict=True)


WORDS = st.none() | st.booleans() | st.floats() | st.integers(-(2**80), 2**80) | st.text(st.characters()) | st.binary()


@given(st.recursive(WORDS, lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner)))
def test_an_error_may_repeat_whatever_a_client_or_a_file_said(detail: object) -> None:
    error = ServiceError("no such thing: \ud800", said=detail)
    assert json.loads(dump_json(error.body()))["error"]["code"] == "internal"


@pytest.mark.parametrize(
    ("value", "said"),
    [(2**64, str(2**64)), (-(2**63) - 1, str(-(2**63) - 1)), (2**64 - 1, 2**64 - 1), ("a\ud800", "a?")],
)
def test_what_json_cannot_say_is_said_in_text(value: object, said: object) -> None:
    assert json.loads(dump_json({"found": value}))["found"] == said


def test_a_number_of_thousands_of_digits_is_cut_short() -> None:
    assert len(dump_json({"found": 10**10_000})) < 11_000


def test_values_json_has_not_are_strings() -> None:
    x = np.array([[np.nan, np.inf], [-np.inf, 1.5]], np.float32)
    assert text(x)["data"] == ["NaN", "Infinity", "-Infinity", 1.5]


def test_complex_numbers_are_pairs() -> None:
    assert text(np.array([1 + 2j, complex(np.nan, 0)], np.complex64))["data"] == [[1.0, 2.0], ["NaN", 0.0]]


def test_bfloat16_is_named_and_written_as_numbers() -> None:
    assert text(np.array([1.5], ml_dtypes.bfloat16)) == {"shape": [1], "dtype": "bfloat16", "data": [1.5]}


def test_order_is_row_major_whatever_the_memory_looks_like() -> None:
    assert text(np.arange(6).reshape(2, 3).T)["data"] == [0, 3, 1, 4, 2, 5]


def test_flags_are_true_and_false() -> None:
    assert text(np.array([True, False]))["data"] == [True, False]


LARGE = arrays.arrays(
    st.sampled_from(["float16", "float32", "float64", "complex64", "int64", "uint64", "int8", "uint8", "bool"]),
    arrays.array_shapes(min_dims=0, min_side=0, max_side=9),
)


@given(st.dictionaries(st.text(max_size=3), LARGE, max_size=3), st.integers(1, 9), st.integers(1, 40))
def test_answers_in_pieces_are_what_they_are_as_a_whole(tensors: dict[str, np.ndarray], slab: int, piece: int) -> None:
    def answer() -> dict[str, object]:
        return {
            "model": "m\n",
            "outputs": {name: json_tensor(array) for name, array in tensors.items()},
            "timing": {"total": 1.5},
        }

    whole = dump_pieces(answer())
    assert len(whole) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "CHUNK_VALUES", slab)
        patch.setattr(answers, "_PIECE", piece)
        pieces = dump_pieces(answer())
    assert b"".join(pieces) == whole[0] == dump_json(answer())
    longest = max((array.size for array in tensors.values()), default=0)
    assert longest <= slab or len(pieces) > 1


@pytest.mark.parametrize("last", [1.25, np.nan])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "int64"])
def test_no_piece_of_a_large_answer_is_longer_than_two_megabytes(last: float, dtype: str) -> None:
    if dtype == "int64" and np.isnan(last):
        last = 3
    array = np.random.default_rng(0).standard_normal(300_000).astype(dtype)
    array[-1] = last
    pieces = dump_pieces({"outputs": {"out0": json_tensor(array)}})
    assert max(map(len, pieces)) <= 2 << 20
    data = json.loads(b"".join(pieces))["outputs"]["out0"]["data"]
    assert len(data) == array.size
    if dtype == "float64":
        np.testing.assert_array_equal(np.array(data, np.float64), array)
