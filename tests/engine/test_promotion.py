"""Dtypes meet as in PyTorch 2.13; the elementwise functions' recorded answers check every pair again."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

from engine.errors import ShapeError
from engine.promotion import (
    Category,
    broadcast_shapes,
    cast,
    category,
    dtype_category,
    float_dtype,
    is_reduced,
    promote_types,
    real_dtype,
    result_type,
)
from engine.tensor import BFLOAT16, CODES, DTYPES, UNKNOWN, Array, Shape, TensorSpec

CODE_NAMES = ["f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool", "c64", "c128"]
# torch.promote_types, row by row in the order above.
PAIRS = [
    "f32  f64  f32  f32  f32  f32  f32  f32  f32  f32  c64  c128",
    "f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128",
    "f32  f64  f16  f32  f16  f16  f16  f16  f16  f16  c64  c128",
    "f32  f64  f32  bf16 bf16 bf16 bf16 bf16 bf16 bf16 c64  c128",
    "f32  f64  f16  bf16 i64  i64  i64  i64  i64  i64  c64  c128",
    "f32  f64  f16  bf16 i64  i32  i32  i32  i32  i32  c64  c128",
    "f32  f64  f16  bf16 i64  i32  i16  i16  i16  i16  c64  c128",
    "f32  f64  f16  bf16 i64  i32  i16  i8   i16  i8   c64  c128",
    "f32  f64  f16  bf16 i64  i32  i16  i16  u8   u8   c64  c128",
    "f32  f64  f16  bf16 i64  i32  i16  i8   u8   bool c64  c128",
    "c64  c128 c64  c64  c64  c64  c64  c64  c64  c64  c64  c128",
    "c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128",
]
TABLE = list(zip(itertools.product(CODE_NAMES, repeat=2), " ".join(PAIRS).split(), strict=True))


@pytest.mark.parametrize(("pair", "expected"), TABLE)
def test_tensors_of_one_group_meet_as_pytorchs(pair: tuple[str, str], expected: str) -> None:
    a, b = (DTYPES[code] for code in pair)
    assert CODES[promote_types(a, b)] == expected


def dim(code: str) -> TensorSpec:
    return TensorSpec((2,), DTYPES[code])


def zero(code: str) -> Array:
    return np.zeros((), DTYPES[code])


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        ((dim("f16"), 2.5), "f16"),
        ((dim("bf16"), 2), "bf16"),
        ((dim("i64"), 2.5), "f32"),
        ((dim("u8"), 300), "u8"),
        ((dim("bool"), 1), "i64"),
        ((dim("bool"), True), "bool"),
        ((dim("f32"), 1j), "c64"),
        ((dim("f64"), 1j), "c128"),
        ((dim("f16"), 1j), "c64"),
        ((dim("i32"), 1j), "c64"),
        ((dim("f32"), zero("f64")), "f32"),
        ((dim("f32"), zero("c128")), "c64"),
        ((dim("f64"), zero("c64")), "c128"),
        ((dim("i64"), zero("f64")), "f64"),
        ((dim("i64"), zero("f16")), "f16"),
        ((dim("u8"), zero("i64")), "u8"),
        ((dim("bool"), zero("i32")), "i32"),
        ((zero("i32"), zero("f16"), 1j), "c64"),
        ((dim("i32"), zero("f64"), 1j), "c128"),
        ((zero("f16"), zero("bf16")), "f32"),
        ((zero("i32"), 3), "i32"),
        ((dim("u8"), dim("i8"), 3), "i16"),
        ((dim("f16"), zero("bf16")), "f16"),
        ((np.float32(1), 2), "f32"),
        ((1, 2), "i64"),
        ((1, 2.5), "f32"),
        ((True, False), "bool"),
        ((dim("i32"), UNKNOWN), "i32"),
        ((dim("i32"), Category.FLOATING), "f32"),
    ],
)
def test_groups_have_priority_as_in_pytorch(operands: tuple[object, ...], expected: str) -> None:
    assert CODES[result_type(*operands)] == expected


@pytest.mark.parametrize(("operand", "found"), [(None, "None"), ("a", "'a'"), ([1], "[1]")])
def test_what_is_no_number_has_no_dtype(operand: object, found: str) -> None:
    with pytest.raises(ShapeError, match="an operand is neither a tensor nor a number") as caught:
        result_type(dim("f32"), operand)
    assert caught.value.found == found


def test_nothing_has_no_dtype() -> None:
    with pytest.raises(ShapeError, match="no operand determines the dtype"):
        result_type()


def test_strings_are_no_numbers() -> None:
    with pytest.raises(ShapeError, match="a tensor has a dtype without arithmetic: found <U1"):
        dtype_category(np.dtype("<U1"))


def test_categories_of_values() -> None:
    found = [category(value) for value in (True, 1, 1.0, 1j, UNKNOWN, zero("bf16"), np.bool_(True), Category.COMPLEX)]
    assert [one.name[0] for one in found] == list("BIFCIFBC")


@pytest.mark.parametrize(
    ("value", "code", "expected"),
    [
        (300, "u8", 44),
        (-1, "u8", 255),
        (2**64 + 5, "i64", 5),
        (2**63, "i64", -(2**63)),
        (2.9, "i32", 2),
        (-2.9, "i8", -2),
        (1e300, "f32", np.inf),
        (0.1, "f32", np.float32(0.1)),
        (True, "f32", 1.0),
        (3 + 4j, "f32", 3.0),
        (4j, "bool", True),
        (0.5, "bool", True),
        (np.float64(1.5), "i32", 1),
        (np.array([300.0, -1.0, np.nan, np.inf]), "u8", [44, 255, 0, 0]),
        (np.array([1 + 2j, 2j]), "f32", [1, 0]),
        (np.array([2j, 0j]), "bool", [True, False]),
        (np.array([70000.0]), "f16", [np.inf]),
        (np.array([1, -1], np.int64), "bf16", [1, -1]),
    ],
)
def test_casts_do_as_pytorch_without_a_warning(value: object, code: str, expected: object) -> None:
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        result = cast(value, DTYPES[code])  # type: ignore[arg-type]
    assert result.dtype == DTYPES[code]
    assert np.array_equal(result, np.asarray(expected, DTYPES[code]))


def test_cast_to_its_own_dtype_is_the_array_itself() -> None:
    x = np.zeros(3, np.float32)
    assert cast(x, np.dtype(np.float32)) is x


def test_numbers_that_compare_equal_are_cast_apart() -> None:
    results = [cast(value, DTYPES["bool"]).item() for value in (1, 1.0, True, 0.0, False)]
    assert results == [True, True, True, False, False]
    assert np.signbit(cast(-0.0, DTYPES["f32"])) != np.signbit(cast(0.0, DTYPES["f32"]))


def test_all_operands_are_cast_to_one_dtype() -> None:
    operands = np.ones(3, np.int64), zero("f16"), 2.5
    x, y, n = (cast(each, result_type(*operands)) for each in operands)
    assert {x.dtype, y.dtype, n.dtype} == {np.dtype(np.float16)}
    assert (x.shape, y.shape, n.shape) == ((3,), (), ())


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ((), ()),
        (((2, 3),), (2, 3)),
        (((2, 3), ()), (2, 3)),
        (((2, 3), (3,)), (2, 3)),
        (((2, 1), (1, 3)), (2, 3)),
        (((0, 3), (1, 1)), (0, 3)),
        (((None, 3), (1, 1)), (None, 3)),
        (((None, 3), (2, 1)), (2, 3)),
        (((None,), (None,)), (None,)),
        (((None,), (0,)), (0,)),
        (((None,), (4, 1, 1), (1, 5, 1)), (4, 5, None)),
    ],
)
def test_shapes_broadcast(shapes: tuple[Shape, ...], expected: Shape) -> None:
    assert broadcast_shapes(*shapes) == expected
    assert broadcast_shapes(*reversed(shapes)) == expected


@pytest.mark.parametrize(
    ("shapes", "found"),
    [(((2, 3), (2,)), "[2, 3] and [2]"), (((None, 3), (5, 4)), "[?, 3] and [5, 4]"), (((2,), (0,)), "[2] and [0]")],
)
def test_shapes_that_do_not_fit_are_both_named(shapes: tuple[Shape, ...], found: str) -> None:
    with pytest.raises(ShapeError, match="shapes do not broadcast") as caught:
        broadcast_shapes(*shapes)
    assert caught.value.found == found


def test_shapes_have_python_integers_whichever_caller_was_first() -> None:
    of_numpy = np.int64(7919), np.int64(1)
    assert [type(dim) for dim in broadcast_shapes(of_numpy, of_numpy)] == [int, int]
    assert [type(dim) for dim in broadcast_shapes((7919, 1), (7919, 1))] == [int, int]


def test_fractional_functions_make_floats_of_integers() -> None:
    results = [CODES[float_dtype(DTYPES[code])] for code in ("bool", "u8", "i64", "f16", "bf16", "f64", "c64")]
    assert results == ["f32", "f32", "f32", "f16", "bf16", "f64", "c64"]


def test_complex_numbers_have_real_parts() -> None:
    assert [CODES[real_dtype(DTYPES[code])] for code in ("c64", "c128", "f16")] == ["f32", "f64", "f16"]


def test_halves_are_the_reduced_dtypes() -> None:
    assert [code for code in CODE_NAMES if is_reduced(DTYPES[code])] == ["f16", "bf16"]
    assert is_reduced(BFLOAT16)
