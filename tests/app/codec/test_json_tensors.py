"""Tests of the conversion of JSON values to tensors by the model's dtype."""

from __future__ import annotations

import base64
import json
from decimal import Decimal

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import engine
from app.codec.json_tensors import decode_inputs
from app.errors import InputMismatchError, InvalidRequestError, RequestTooLargeError, ServiceError
from app.images.decode import Picture
from app.settings import Settings
from app.signature import Input, Inputs, Signature

SETTINGS = Settings(max_elements=1000)


def port(name: str, dtype: str, shape: tuple[int | None, ...] = (None, 3)) -> engine.Port:
    return engine.Port(name=name, operand="0", spec=engine.TensorSpec(shape, np.dtype(dtype)), aliases=("x",))


def decode(value: object, *ports: engine.Port, picture: str | None = None) -> Inputs:
    return decode_inputs(
        value, Signature(inputs=ports, outputs=(), contents={} if picture is None else {picture: "picture"}), SETTINGS
    )


def only(value: object, dtype: str = "float32") -> Input:
    return decode(value, port("in0", dtype))["in0"]


def check(found: Input, expected: object, dtype: str) -> None:
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, np.array(expected, dtype), strict=True)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([[1, 2, 3]], "float32"),
        ([[1.5, 2, -3e-7]], "float32"),
        ([[0.1]], "float64"),
        ([[1.0, 2.0]], "int64"),
        ([[2**63 - 1, -(2**63)]], "int64"),
        ([[0, 255]], "uint8"),
        ([[True, False]], "bool"),
        ([], "float32"),
        ([[], []], "float32"),
        (7, "float32"),
        (7, "int32"),
        (True, "bool"),
    ],
)
def test_nested_lists_become_the_inputs_dtype(value: object, dtype: str) -> None:
    check(only(value, dtype), value, dtype)


@given(arrays.arrays(st.sampled_from(["float32", "float64", "int64", "uint8", "bool"]),
                     arrays.array_shapes(min_dims=0, max_side=3)))  # fmt: skip
def test_every_array_comes_back_from_its_list_and_from_its_bytes(array: np.ndarray) -> None:
    name = array.dtype.name
    finite = np.nan_to_num(array) if array.dtype.kind == "f" else array
    np.testing.assert_array_equal(only(finite.tolist(), name), finite)
    text = base64.b64encode(array.tobytes()).decode()
    np.testing.assert_array_equal(only({"shape": list(array.shape), "dtype": name, "b64": text}, name), array)


def test_strings_stand_for_what_json_cannot_spell() -> None:
    check(only([["NaN", "Infinity", "-Infinity", 1]]), [[np.nan, np.inf, -np.inf, 1]], "float32")


@pytest.mark.parametrize(
    "value",
    [
        {"shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]},
        {"data": [[1, 2, 3], [4, 5, 6]]},
        {"shape": [2, 3], "dtype": "float32", "data": [[1, 2, 3], [4, 5, 6]]},
    ],
)
def test_data_may_be_flat_or_nested(value: object) -> None:
    check(only(value), [[1, 2, 3], [4, 5, 6]], "float32")


def test_a_tensor_without_elements_needs_none() -> None:
    check(only({"shape": [0, 3], "data": []}), np.empty((0, 3)), "float32")
    check(only({"shape": [2, 0, 3], "data": [[], []]}), np.empty((2, 0, 3)), "float32")
    check(only({"shape": [1], "data": 7}), [7], "float32")


LIMITS = {name: np.iinfo(name) for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")}


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("spelling", ["{}", "{}.0", "{}e0", "[{}, 1.0]", "[1, [{}]]"])
def test_integers_in_json_are_exact_or_refused(dtype: str, spelling: str) -> None:
    lowest, highest = LIMITS[dtype].min, LIMITS[dtype].max
    numbers = [2**53 + 1, 10**18, *(edge + step for edge in (lowest, highest) for step in (-2, -1, 0, 1, 2))]
    numbers += [-(2**63) - 1, -(2**63) - 1024, 2**64, 2**64 + 5, 2**65, -(2**64), 10**40]
    for number in numbers:
        text = spelling.format(number)
        value = orjson.loads(text)
        # What the document says, digit by digit; floats of more than 2**53 are not spelt exactly, so may be refused.
        document = json.loads(text, parse_float=lambda digits: int(Decimal(digits)))
        fits = lowest <= number <= highest
        if fits and spelling in ("{}", "[{}, 1.0]"):
            check(only(value, dtype), np.array(document, dtype), dtype)
        elif not fits:
            with pytest.raises(InputMismatchError, match="out of range|unequal length"):
                only(value, dtype)


@pytest.mark.parametrize("number", ["18446744073709551615.0", "1.8446744073709552e19", "36893488147419103232"])
def test_a_float_at_the_end_of_64_bits_does_not_wrap_around(number: str) -> None:
    with pytest.raises(InputMismatchError, match="found a value that is out of range, expected uint64"):
        only(orjson.loads(f"[{number}]"), "uint64")


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        ([2, 3], [[1, 2], [3, 4], [5, 6]]),
        ([6], [[1, 2, 3], [4, 5, 6]]),
        ([1, 2, 3], [[1, 2, 3], [4, 5, 6]]),
        ([2, 3], [[[1, 2, 3], [4, 5, 6]]]),
        ([0, 3], [[], []]),
    ],
)
def test_data_nested_in_another_way_than_its_shape_is_refused(shape: list[int], data: object) -> None:
    with pytest.raises(InputMismatchError, match=r"input 'in0': data is nested as .*, expected a flat list or "):
        only({"shape": shape, "data": data})


def test_inputs_are_found_by_name_and_by_alias() -> None:
    both = (port("in0", "float32"), port("in1", "int64"))
    assert set(decode({"in0": [[1]], "in1": [[2]]}, *both)) == {"in0", "in1"}
    assert set(decode({"x": [[1]]}, port("in0", "float32"))) == {"in0"}


@pytest.mark.parametrize("value", [{"image": "aGk="}, [{"image": "aGk="}], {"image": "data:image/png;base64,aGk="}])
def test_an_image_stands_for_the_picture_input(value: object) -> None:
    assert decode(value, port("in0", "float32"), picture="in0") == {"in0": (Picture(data=b"hi"),)}


def test_an_input_may_have_the_name_of_a_keyword() -> None:
    image = engine.Port(name="image", operand="0", spec=engine.TensorSpec((None, 3, 2, 2), np.dtype(np.float32)))
    assert decode({"image": "aGk="}, image, picture="image") == {"image": (Picture(data=b"hi"),)}
    check(decode({"image": [[[[1]]]]}, image, picture="image")["image"], [[[[1]]]], "float32")
    data = engine.Port(name="data", operand="0", spec=engine.TensorSpec((None, 3), np.dtype(np.float32)))
    for value in ({"data": [[1, 2, 3]]}, {"data": [1, 2, 3], "shape": [1, 3]}, {"data": {"data": [[1, 2, 3]]}}):
        check(decode(value, data)["data"], [[1, 2, 3]], "float32")


def test_several_images_are_a_batch_of_numbered_pictures() -> None:
    found = decode({"in0": [{"image": "aGk="}, {"image": "aG8="}]}, port("in0", "float32"), picture="in0")["in0"]
    assert found == (Picture(data=b"hi", label="picture 1"), Picture(data=b"ho", label="picture 2"))


def test_a_picture_finds_its_input_among_several() -> None:
    both = (port("in0", "float32"), port("in1", "float32"))
    assert set(decode({"image": "aGk="}, *both, picture="in1")) == {"in1"}


REFUSED: list[tuple[str, object, type[ServiceError], str]] = [
    ("float32", [[1, "a"]], InputMismatchError, "input 'in0': found a string, expected numbers for [?, 3] float32"),
    ("float32", [[1, None]], InputMismatchError, "input 'in0': found null, expected numbers for [?, 3] float32"),
    ("float32", [[1, {}]], InputMismatchError, "input 'in0': found an object, expected numbers for [?, 3] float32"),
    ("float32", [[True, False]], InputMismatchError,
     "input 'in0': found true or false, expected numbers for [?, 3] float32"),
    ("float32", None, InputMismatchError, "input 'in0': found null, expected numbers for [?, 3] float32"),
    ("float32", [[1, 2], [3]], InputMismatchError,
     "input 'in0': found lists of unequal length, expected evenly nested lists of numbers for [?, 3] float32"),
    ("float32", [1, [2]], InputMismatchError,
     "input 'in0': found lists of unequal length, expected evenly nested lists of numbers for [?, 3] float32"),
    ("float32", [[1e39]], InputMismatchError, "input 'in0': found a value that is out of range, expected float32"),
    ("float32", [[10**400]], InputMismatchError, "input 'in0': found a value that is out of range, expected float32"),
    ("int64", [[1.5]], InputMismatchError,
     "input 'in0': found a number with a fraction, expected numbers for [?, 3] int64"),
    ("int64", [[2**63]], InputMismatchError, "input 'in0': found a value that is out of range, expected int64"),
    ("int64", [[1e300]], InputMismatchError, "input 'in0': found a value that is out of range, expected int64"),
    ("uint8", [[-1]], InputMismatchError, "input 'in0': found a value that is out of range, expected uint8"),
    ("uint8", [[256.0]], InputMismatchError, "input 'in0': found a value that is out of range, expected uint8"),
    ("uint8", [["1"]], InputMismatchError, "input 'in0': found a string, expected numbers for [?, 3] uint8"),
    ("bool", [[0, 1]], InputMismatchError, "input 'in0': found a number, expected true or false"),
    ("complex64", [[1]], InvalidRequestError, "input 'in0': found JSON numbers, expected complex64 as 'b64' or .npy"),
    ("float32", {"shape": [1, 3], "data": [1, 2]}, InputMismatchError,
     "input 'in0': data does not match its shape: found 2 values, expected 3 for shape [1, 3]"),
    ("float32", {"shape": [10**9], "data": [1]}, RequestTooLargeError,
     "input 'in0': shape has too many elements: found 1000000000, expected at most 1000"),
    ("float32", {"shape": [0, 10**12], "b64": ""}, RequestTooLargeError,
     "input 'in0': shape has too many elements: found 1000000000000, expected at most 1000"),
    ("float32", {"shape": [-1, 3], "data": [1, 2, 3]}, InvalidRequestError,
     "input 'in0': shape: expected a list of whole numbers, none negative"),
    ("float32", {"shape": [True], "data": [1]}, InvalidRequestError,
     "input 'in0': shape: expected a list of whole numbers, none negative"),
    ("float32", {"shape": [1] * 33, "data": [1]}, InvalidRequestError,
     "input 'in0': shape: expected a list of whole numbers, none negative"),
    ("float32", {"shape": [1], "dtype": "float64", "data": [1]}, InputMismatchError,
     "input 'in0': wrong dtype: found 'float64', expected 'float32'"),
    ("float32", {"shape": [1], "dtype": 7, "data": [1]}, InputMismatchError,
     "input 'in0': wrong dtype: found 7, expected 'float32'"),
    ("float32", {"shape": [1]}, InvalidRequestError,
     "input 'in0': expected either 'data' or 'b64' (base64 of the raw bytes)"),
    ("float32", {"shape": [1], "data": [1], "b64": ""}, InvalidRequestError,
     "input 'in0': expected either 'data' or 'b64' (base64 of the raw bytes)"),
    ("float32", {"b64": "AAAA"}, InvalidRequestError, "input 'in0': found 'b64' without 'shape', expected both"),
    ("float32", {"shape": [1], "b64": "AAAA"}, InputMismatchError,
     "input 'in0': b64 holds 3 bytes, expected 4 for [1] float32"),
    ("float32", {"shape": [1], "b64": "!"}, InvalidRequestError, "input 'in0': b64: not base64: "),
    ("float32", {"shape": [1], "b64": 5}, InvalidRequestError, "input 'in0': b64: found a number, expected a base64"),
    ("float32", {"in0": {"shape": [1], "dada": [1]}}, InvalidRequestError,
     "input 'in0': unknown key 'dada' (did you mean 'data'?), expected 'b64', 'data', 'dtype', 'shape', or 'image'"),
    ("float32", {"inn0": [1]}, InputMismatchError, "unknown input: found 'inn0', expected 'in0'"),
    ("float32", {"image": "aGk="}, InputMismatchError,
     "input 'in0' takes no pictures: found a picture, expected a tensor [?, 3] float32"),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "value", "error", "message"), REFUSED)
def test_values_that_do_not_fit_are_refused(dtype: str, value: object, error: type[ServiceError], message: str) -> None:
    with pytest.raises(error) as caught:
        only(value, dtype)
    assert str(caught.value).startswith(message)


def test_one_unnamed_tensor_for_two_inputs_is_refused() -> None:
    with pytest.raises(InputMismatchError, match="the model has 2 inputs.*one for each of 'in0', 'in1'"):
        decode([[1]], port("in0", "float32"), port("in1", "float32"))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["in0", "shape", "dtype", "data", "b64", "image", "other"]), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@given(JSON_VALUES, st.sampled_from(["float32", "float16", "int64", "uint8", "bool", "complex64"]))
def test_any_json_value_is_a_tensor_or_refused_in_words(value: object, dtype: str) -> None:
    try:
        found = decode(value, port("in0", dtype), picture="in0")
    except ServiceError as error:
        assert error.status in (400, 413, 422)
    else:
        assert all(isinstance(item, tuple) or item.dtype == dtype for item in found.values())
