"""Shapes and dtypes as people and the converter write them."""

from __future__ import annotations

import pytest

from exporter.errors import ExportError
from exporter.inputs import InputSpec, check_second, parse_inputs
from exporter.sizes import other_shapes


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
    (["1", "2", "3"], ["int64", "int64"], "wrong number of dtypes: found 2, expected one for all, or 3, one an input"),
])  # fmt: skip
def test_what_is_no_input_is_refused(shapes: list[str], dtypes: list[str], message: str) -> None:
    with pytest.raises(ExportError, match=message):
        parse_inputs(shapes, dtypes)


@pytest.mark.parametrize(("second", "message"), [
    ([], "wrong number of second shapes: found 0, expected 1, one an input"),
    ([spec(1, 3)], "the second shapes equal the first: found no difference"),
    ([spec(1, 3, 4)], r"not of the same rank and dtype: found \[1,3,4\]f32, expected the rank and dtype of \[1,3\]f32"),
    ([spec(2, 3, dtype="i64")], "not of the same rank and dtype"),
])  # fmt: skip
def test_second_shapes_that_cannot_belong_to_the_model_are_refused(second: list[InputSpec], message: str) -> None:
    with pytest.raises(ExportError, match=message):
        check_second([spec(1, 3)], second)


def tried(first: list[InputSpec], second: list[InputSpec]) -> list[tuple[int, ...]]:
    return [sum((each.shape for each in shapes), ()) for shapes in other_shapes(first, second)]


def test_a_dynamic_size_is_tried_at_steps_and_odd_sizes_below_between_and_above() -> None:
    sizes = [size for (size,) in tried([spec(32)], [spec(48)])]
    assert sizes == [64, 80, 16, 53, 31, 17, 41]
    assert sizes == [size for (size,) in tried([spec(48)], [spec(32)])]


def test_sizes_of_one_pair_change_together_and_each_alone() -> None:
    found = tried([spec(3, 8, 8)], [spec(3, 12, 12)])
    assert {(3, 16, 16), (3, 13, 13), (3, 7, 7), (3, 13, 8), (3, 8, 13)} <= {*found}


def test_sizes_of_several_inputs_change_in_proportion() -> None:
    found = tried([spec(10), spec(5)], [spec(20), spec(10)])
    assert {(30, 15), (22, 11), (6, 3)} <= {*found}


def test_sizes_are_positive_and_none_is_tried_twice() -> None:
    for first, second in (([spec(1, 3)], [spec(2, 4)]), ([spec(1)], [spec(2)]), ([spec(2, 2)], [spec(3, 2)])):
        found = tried(first, second)
        assert found and len({*found}) == len(found)
        assert all(size > 0 for sizes in found for size in sizes)


def test_half_precision_has_a_single_precision_twin() -> None:
    assert spec(1, dtype="bf16").without_half == spec(1)
    assert spec(1, dtype="i64").without_half == spec(1, dtype="i64")
