"""Every function gives PyTorch's values, shapes and dtypes, and refuses what PyTorch refuses."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import EngineError
from engine.expression import FUNCTIONS, Call, Input, Literal, Node, evaluate, infer, parse
from engine.tensor import BFLOAT16, DTYPES, UNKNOWN, Array, TensorSpec
from tests.engine.expression.recorded import disagreements, false_announcements, groups

every_function = pytest.mark.parametrize("function", sorted({group.partition("-")[0] for group in groups()}))


def of_function(function: str) -> list[str]:
    """Return the groups of its recorded cases, one a dtype of the first operand."""
    return sorted(group for group in groups() if group.partition("-")[0] == function)


@every_function
def test_answers_are_pytorchs(function: str) -> None:
    assert [each for group in of_function(function) for each in disagreements(group)] == []


@every_function
def test_announcements_are_pytorchs_shapes_and_dtypes(function: str) -> None:
    assert [each for group in of_function(function) for each in false_announcements(group)] == []


def test_every_elementwise_function_has_recorded_answers() -> None:
    recorded = {group.partition("-")[0] for group in groups()}
    special = {"size", "int"} | {name for name in FUNCTIONS if name.startswith("torch.")}
    assert recorded == set(FUNCTIONS) - special


def number(text: str, *operands: object) -> object:
    return evaluate(parse(text), operands)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("add(2,3)", 5),
        ("sub(2,3.5)", -1.5),
        ("div(7,2)", 3.5),
        ("div(1,0)", np.inf),
        ("div(1,3)", 1 / 3),
        ("floor_divide(-7,2)", -4),
        ("floor_divide(-7.0,2)", -4.0),
        ("remainder(-7,2)", 1),
        ("fmod(-7,2)", -1),
        ("pow(2,10)", 1024),
        ("pow(2,-1)", 0.5),
        ("pow(3,64)", (3**64 + 2**63) % 2**64 - 2**63),
        ("mul(4611686018427387904,2)", -(2**63)),
        ("lshift(1,70)", 0),
        ("rshift(-8,1)", -4),
        ("rshift(-8,99)", -1),
        ("and(6,3)", 2),
        ("xor(True,True)", False),
        ("add(True,True)", 2),
        ("max(2,3.5)", 3.5),
        ("min(2,3)", 2),
        ("abs(3+4j)", 5.0),
        ("round(2.5)", 2.0),
        ("ceil(3)", 3),
        ("sqrt(16)", 4.0),
        ("sign(-0.5)", -1.0),
        ("neg(3)", -3),
        ("int(-2.7)", -2),
        ("int(True)", 1),
        ("torch.float(0.1)", float(np.float32(0.1))),
        ("torch.long(2.9)", 2),
        ("torch.uint8(300)", 44),
        ("torch.bool(3)", True),
        ("torch.cfloat(2)", 2 + 0j),
    ],
)
def test_numbers_among_themselves_are_pythons(text: str, value: object) -> None:
    result = number(text)
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("torch.bfloat16(0.1)", np.array(0.10009765625, DTYPES["bf16"])),
        ("torch.double(size(@0,0))", np.array(2.0)),
        ("mul(@0,torch.double(3))", np.array([3.0, 6.0])),
        ("mul(@0,torch.float(3))", np.array([3.0, 6.0], np.float32)),
    ],
)
def test_a_number_cast_to_what_python_has_not_promotes_as_a_tensor(text: str, value: np.ndarray) -> None:
    result = number(text, np.array([1, 2]))
    assert isinstance(result, np.ndarray)
    assert (result.shape, result.dtype) == (value.shape, value.dtype)
    np.testing.assert_array_equal(result, value)
    assert infer(parse(text), [TensorSpec((2,), np.dtype(np.int64))]) == TensorSpec(value.shape, value.dtype)


def test_infer_computes_numbers_that_are_known() -> None:
    assert infer(parse("floor_divide(mul(7,3),2)"), []) == 10


@pytest.mark.parametrize(
    ("text", "shape", "value"),
    [
        ("size(@0,0)", (2, 3), 2),
        ("size(@0,-1)", (2, 3), 3),
        ("size(@0)", (2, 3), [2, 3]),
        ("size(@0)", (), []),
        ("[size(@0,0),4,mul(size(@0,1),2)]", (2, 3), [2, 4, 6]),
    ],
)
def test_sizes_are_ints(text: str, shape: tuple[int, ...], value: object) -> None:
    assert number(text, np.zeros(shape)) == value
    assert infer(parse(text), [TensorSpec(shape, DTYPES["f32"])]) == value


@pytest.mark.parametrize("value", [np.array(2.7), np.array([[2.7]], np.float16), np.float32(2.7), 2.7])
def test_int_takes_the_one_element(value: object) -> None:
    assert number("int(@0)", value) == 2


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("float", "f32"), ("double", "f64"), ("half", "f16"), ("bfloat16", "bf16"), ("long", "i64"), ("int", "i32"),
        ("short", "i16"), ("int8", "i8"), ("uint8", "u8"), ("bool", "bool"), ("complex64", "c64"), ("cdouble", "c128"),
    ],
)  # fmt: skip
def test_cast_of_a_tensor_keeps_its_shape(name: str, code: str) -> None:
    text = f"torch.{name}(@0)"
    x = np.array([[0, 1, 100]], np.int64)
    value = number(text, x)
    assert isinstance(value, np.ndarray)
    assert value.dtype == DTYPES[code]
    assert np.array_equal(value, x.astype(DTYPES[code]))
    assert infer(parse(text), [TensorSpec((1, None), x.dtype)]) == TensorSpec((1, None), DTYPES[code])


@pytest.mark.parametrize("code", ["f16", "bf16", "f32", "f64"])
def test_literal_never_raises_the_dtype_of_a_tensor(code: str) -> None:
    value = number("mul(@0,0.1)", np.ones(3, DTYPES[code]))
    assert isinstance(value, np.ndarray)
    assert value.dtype == DTYPES[code]


def test_literal_in_float64_keeps_its_digits() -> None:
    assert np.array_equal(number("mul(@0,0.1)", np.ones(1)), [0.1])  # type: ignore[arg-type]


SHORT = np.array([1, 2, 3], np.float32)
INTEGERS = np.array([4, -1, 3])


@pytest.mark.parametrize(
    ("text", "operands", "message"),
    [
        ("floor_divide(1,0)", (), "floor_divide(1,0): integer division by zero"),
        ("fmod(@0,0)", (INTEGERS,), "fmod(@0,0): integer division by zero"),
        ("remainder(@0,@1)", (INTEGERS, np.zeros(3, np.uint8)), "remainder(@0,@1): integer division by zero"),
        ("add(@0,@1)", (SHORT, np.zeros(2)), "add(@0,@1): shapes do not broadcast: found [3] and [2], "
         "expected each dimension equal or 1, counted from the last"),
        ("mul(add(@0,1),2)", (None,), "add(@0,1): an operand is neither a tensor nor a number: found None, "
         "expected a tensor or a number"),
        ("neg(@0)", ([1, 2],), "neg(@0): an operand is neither a tensor nor a number: found [1, 2], "
         "expected a tensor or a number"),
        ("neg(@0)", (np.array(["a"]),), "neg(@0): a tensor has a dtype without arithmetic: found <U1, "
         "expected a numeric dtype"),
        ("sub(@0,1)", (SHORT > 1,), "sub(@0,1): sub is not defined for bools: found a bool, expected numbers"),
        ("sub(@0,@0)", (SHORT > 1,), "sub(@0,@0): sub is not defined for this dtype: found bool, "
         "expected integer, floating, complex"),
        ("lshift(@0,1)", (SHORT,), "lshift(@0,1): lshift is not defined for this dtype: found float32, "
         "expected integer"),
        ("floor(1+2j)", (), "floor(1.0+2.0j): floor is not defined for this dtype: found complex numbers, "
         "expected integer, floating"),
        ("pow(@0,-1)", (INTEGERS,), "pow(@0,-1): integers have no negative powers: found -1, expected 0 or more"),
        ("size(@0,2)", (SHORT,), "size(@0,2): the dimension is out of range: found 2, expected one of 1 dimensions"),
        ("size(@0,1.5)", (SHORT,), "size(@0,1.5): a dimension is not an integer: found 1.5, expected an integer"),
        ("size(@0)", (3,), "size(@0): only tensors have a size: found 3, expected a tensor"),
        ("int(@0)", (SHORT,), "int(@0): only a single number becomes an int: found 3 elements, expected 1"),
        ("int(inf)", (), "int(inf): the value cannot become an integer: found inf, expected a finite real number"),
        ("int(@0)", ("a",), "int(@0): the value cannot become an integer: found 'a', expected a finite real number"),
        ("torch.int(@0)", ("a",), "torch.int(@0): the value cannot be cast: found 'a', expected a tensor or a number"),
        ("add(@1,1)", (SHORT,), "the expression reads a missing input: found @1, expected only @0"),
        ("@2", (SHORT, SHORT), "the expression reads a missing input: found @2, expected @0 to @1"),
        ("@0", (), "the expression reads a missing input: found @0, expected no input"),
    ],
)  # fmt: skip
def test_refusals_say_where_and_what(text: str, operands: tuple[object, ...], message: str) -> None:
    with pytest.raises(EngineError) as caught:
        number(text, *operands)
    assert str(caught.value) == message


def test_long_expressions_are_quoted_in_part() -> None:
    with pytest.raises(EngineError) as caught:
        number(f"floor_divide({'add(' * 30}1{',1)' * 30},0)")
    assert caught.value.where == "floor_divide(" + "add(" * 11 + "..."


@pytest.mark.parametrize(
    "text", ["add(@0,1)", "erf(@0)", "pow(@0,3)", "remainder(@0,2)", "round(@0)", "sign(@0)", "@0"]
)
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float16), BFLOAT16, np.dtype(np.int64)])
def test_operands_are_never_changed(text: str, dtype: np.dtype[np.generic]) -> None:
    x: Array = np.array([3, -2, 5]).astype(dtype)
    number(text, x)
    assert np.array_equal(x, [3, -2, 5])


@pytest.mark.parametrize("text", ["div(@0,0)", "log(@0)", "exp(mul(@0,1e30))", "pow(@0,0.5)", "mul(@0,1e300)"])
def test_overflow_and_invalid_values_do_not_warn(text: str) -> None:
    with np.errstate(all="raise"):
        number(text, np.array([-1.0, 0, 1e20], np.float32))


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("mul(@0,size(@0,1))", "i64"),
        ("mul(@0,div(size(@0,1),2))", "f32"),
        ("mul(@0,sqrt(size(@0,1)))", "f32"),
        ("mul(@0,torch.float(size(@0,1)))", "f32"),
        ("mul(@0,torch.cfloat(size(@0,1)))", "c64"),
        ("mul(@0,abs(mul(size(@0,1),2j)))", "f32"),
        ("mul(@0,floor_divide(size(@0,1),2))", "i64"),
        ("mul(@0,int(div(size(@0,1),2)))", "i64"),
        ("mul(@0,max(size(@0,1),2.5))", "f32"),
        ("mul(@0,pow(size(@0,1),-1))", "f32"),
        ("mul(@0,size(@1,0))", "i64"),
        ("mul(@0,int(@1))", "i64"),
    ],
)
def test_kind_of_a_number_is_announced_before_its_value(text: str, dtype: str) -> None:
    integers = TensorSpec((3, None), DTYPES["i64"])
    assert infer(parse(text), [integers, UNKNOWN]) == TensorSpec((3, None), DTYPES[dtype])


@pytest.mark.parametrize("text", ["mul(@0,@1)", "mul(@1,sqrt(@0))", "add(torch.double(@0),@1)", "torch.float(@0)"])
def test_nothing_is_announced_of_what_a_tensor_of_unknown_shape_may_broadcast(text: str) -> None:
    assert infer(parse(text), [UNKNOWN, TensorSpec((6, 1, 4), DTYPES["c64"])]) is UNKNOWN


def test_nothing_is_announced_of_a_list_with_a_number_of_unknown_kind() -> None:
    assert infer(parse("mul(@0,@1)"), [TensorSpec((3,), DTYPES["i64"]), [UNKNOWN, 1, 2]]) is UNKNOWN


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[size(@0,0),-1]", [UNKNOWN, -1]),
        ("size(@0)", [UNKNOWN, 3]),
        ("add(size(@0,0),size(@0,1))", UNKNOWN),
        ("mul(size(@0,1),2)", 6),
        ("size(@0,size(@0,0))", UNKNOWN),
        ("int(div(size(@0,0),2))", UNKNOWN),
        ("sqrt(size(@0,0))", UNKNOWN),
        ("@0", TensorSpec((None, 3), DTYPES["f32"])),
        ("add(@0,1)", TensorSpec((None, 3), DTYPES["f32"])),
        ("[@0,None]", [TensorSpec((None, 3), DTYPES["f32"]), None]),
    ],
)
def test_dynamic_dimensions_stay_unknown(text: str, value: object) -> None:
    assert infer(parse(text), [TensorSpec((None, 3), DTYPES["f32"])]) == value


def test_known_arrays_are_announced_as_their_specs() -> None:
    assert infer(parse("[@0,add(@0,1)]"), [SHORT]) == [TensorSpec((3,), SHORT.dtype)] * 2


def test_sizes_of_what_is_unknown_are_unknown() -> None:
    assert infer(parse("size(@0,0)"), [UNKNOWN]) is UNKNOWN


def test_an_operand_of_which_nothing_is_known_may_be_what_a_function_is_defined_for() -> None:
    assert infer(parse("logaddexp(@0,@1)"), [UNKNOWN, UNKNOWN]) is UNKNOWN
    with pytest.raises(EngineError, match="logaddexp is not defined for this dtype: found integer"):
        infer(parse("logaddexp(@0,1)"), [2])


ROUNDED = TensorSpec((3,), DTYPES["i64"])


@pytest.mark.parametrize(
    ("text", "annotated", "expected"),
    [
        ("div(@0,2)", ROUNDED, [2, -1, 1]),
        ("div(@0,@0)", ROUNDED, [1, 1, 1]),
        ("div(@0,2)", None, [2, -0.5, 1.5]),
        ("div(@0,2)", TensorSpec((3,), DTYPES["f32"]), [2, -0.5, 1.5]),
        ("div(@0,2.0)", ROUNDED, [2, -0.5, 1.5]),
        ("mul(div(@0,2),2)", ROUNDED, [4, -1, 3]),
    ],
)
def test_outermost_integer_division_rounds_down_where_annotated(
    text: str, annotated: TensorSpec | None, expected: list[float]
) -> None:
    node: Node = parse(text)
    value = evaluate(node, [INTEGERS], annotated=annotated)
    assert isinstance(value, np.ndarray)
    assert np.array_equal(value, expected)
    announced = infer(node, [TensorSpec((3,), INTEGERS.dtype)], annotated=annotated)
    assert announced == TensorSpec((3,), value.dtype)


def test_a_tree_that_is_made_anew_rounds_down_like_the_first() -> None:
    for _ in range(2):
        node = Call("div", (Input(0), Literal(2)))
        assert np.array_equal(evaluate(node, [INTEGERS], annotated=ROUNDED), [2, -1, 1])
        assert infer(node, [ROUNDED], annotated=ROUNDED) == ROUNDED
