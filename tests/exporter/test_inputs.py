"""Shapes and dtypes as people and the converter write them."""

from __future__ import annotations

import pytest

from exporter.errors import ExportError
from exporter.inputs import InputSpec, check_second, parse_inputs, third


def spec(*shape: int, dtype: str = "f32") -> InputSpec:
    return InputSpec(shape=shape, dtype=dtype)


@pytest.mark.parametrize(("shape", "dtypes", "expected"), [
    ("1,3,224,224", [], "[1,3,224,224]f32"),
    (" 1, 3 ", [], "[1,3]f32"),
    ("[7]", [], "[7]f32"),
    ("[1,77]i64", [], "[1,77]i64"),
    ("1,77 int64", [], "[1,77]i64"),
    ("2", ["bool"], "[2]bool"),
    ("2", ["torch.float16"], "[2]f16"),
    ("2i32", ["float64"], "[2]i32"),
    ("2", ["complex64"], "[2]c64"),
])  # fmt: skip
def test_shapes_are_read_as_people_write_them(shape: str, dtypes: list[str], expected: str) -> None:
    (found,) = parse_inputs([shape], dtypes)
    assert str(found) == expected


def test_a_dtype_is_for_all_inputs_or_each_has_its_own() -> None:
    assert [s.dtype for s in parse_inputs(["1", "2"], ["int64"])] == ["i64", "i64"]
    assert [s.dtype for s in parse_inputs(["1", "2"], ["int64", "float32"])] == ["i64", "f32"]


@pytest.mark.parametrize(("shapes", "dtypes", "message"), [
    (["1,x"], [], "not a shape: found '1,x', expected sizes such as 1,3,224,224"),
    (["1,,2"], [], "not a shape: found '1,,2'"),
    (["0,3"], [], "not a shape: found '0,3'.*all positive"),
    (["-1,3"], [], "not a shape: found '-1,3'"),
    ([""], [], "an input without dimensions"),
    (["[]"], [], "an input without dimensions, expected at least one: the converter has no scalar inputs"),
    (["1"], ["string"], "unknown dtype: found 'string', expected one of float32, float64"),
    (["1", "2", "3"], ["int64", "int64"], "dtypes: found 2, expected one for all, or 3, one an input"),
])  # fmt: skip
def test_what_is_no_input_is_refused(shapes: list[str], dtypes: list[str], message: str) -> None:
    with pytest.raises(ExportError, match=message):
        parse_inputs(shapes, dtypes)


@pytest.mark.parametrize(("second", "message"), [
    ([], "second shapes: found 0, expected 1, one an input"),
    ([spec(1, 3)], "the second shapes: found those of the first"),
    ([spec(1, 3, 4)], r"not of the same rank and dtype: found \[1,3,4\]f32, expected one like \[1,3\]f32"),
    ([spec(2, 3, dtype="i64")], "not of the same rank and dtype"),
])  # fmt: skip
def test_second_shapes_that_cannot_belong_to_the_model_are_refused(second: list[InputSpec], message: str) -> None:
    with pytest.raises(ExportError, match=message):
        check_second([spec(1, 3)], second)


def test_the_third_shape_goes_as_far_again_where_the_two_differ() -> None:
    assert third([spec(1, 3, 224)], [spec(4, 3, 320)]) == (spec(7, 3, 416),)
    assert third([spec(1, 3, 320)], [spec(4, 3, 224)]) == (spec(7, 3, 416),)


def test_half_precision_has_a_single_precision_twin() -> None:
    assert spec(1, dtype="bf16").without_half == spec(1)
    assert spec(1, dtype="i64").without_half == spec(1, dtype="i64")
