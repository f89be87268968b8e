"""Parameters: a type is inferred from the spelling, and written so that it is inferred again."""

from __future__ import annotations

import math

import pytest
from hypothesis import given

from engine.errors import ParamSyntaxError
from engine.pnnx import Parameter
from engine.pnnx.graph import same
from engine.pnnx.values import format_parameter, parse_parameter
from tests.engine.pnnx.strategies import parameters

NAN = math.nan

SPELLINGS: list[tuple[str, Parameter]] = [
    ("None", None),
    ("()", None),
    ("[]", None),
    ("True", True),
    ("False", False),
    ("0", 0),
    ("-7", -7),
    ("2147483647", 2147483647),
    ("-9223372036854775808", -(2**63)),
    ("0.1", 0.1),
    ("-1.0", -1.0),
    ("1.000000e-5", 1e-5),
    ("1.000000e-05", 1e-5),
    ("1.000000e30", 1e30),
    ("1e+06", 1e6),
    ("1.", 1.0),
    ("0.333333", 0.333333),
    ("3.14159274", 3.14159274),
    ("inf", math.inf),
    ("-inf", -math.inf),
    ("nan", NAN),
    ("nan.0", NAN),
    ("-nan", NAN),
    ("-nan.0", NAN),
    ("1.000000e+00+-2.000000e+00j", 1 - 2j),
    ("1.000000e+00-2.000000e+00j", 1 - 2j),
    ("1.0e+00+2.0e+00j", 1 + 2j),
    ("-1-2j", -1 - 2j),
    ("2.5j", 2.5j),
    ("(1,2)", (1, 2)),
    ("[1,2]", (1, 2)),
    ("(0.5,1.0)", (0.5, 1.0)),
    ("(-1)", (-1,)),
    ("(0,@0)", (0, "@0")),
    ("(None,7)", (None, 7)),
    ("(True,False)", (True, False)),
    ("(inf,1.0)", (math.inf, 1.0)),
    ("(1, 2)", (1, 2)),
    ("(1.0e+00+2.0e+00j,2j)", (1 + 2j, 2j)),
    ("", ""),
    ("zeros", "zeros"),
    ("torch.float", "torch.float"),
    ("ijm,mkl->ijkl", "ijm,mkl->ijkl"),
    ("infinity", "infinity"),
    ("nano", "nano"),
    ("none", "none"),
    ("3x3", "3x3"),
    ("-", "-"),
    ("1e", "1e"),
    (".5", ".5"),
    ("1_000", "1_000"),
    ("٣", "٣"),
]


@pytest.mark.parametrize(("text", "value"), SPELLINGS, ids=[text for text, _ in SPELLINGS])
def test_spelling_decides_the_type(text: str, value: Parameter) -> None:
    assert same(parse_parameter("key", text), value)


@pytest.mark.parametrize("text", ["[None,@0]", "0", "None", "True", "()", "[5,7]", "(", "1.5", "[[2,1],[0,1]]"])
def test_expressions_are_always_text(text: str) -> None:
    assert parse_parameter("expr", text) == text


REFUSED = [
    ("(1,2", "a list is not closed: found '(1,2', expected a final ')'"),
    ("(", "a list is not closed: found '(', expected a final ')'"),
    ("[1,2)", "a list is not closed: found '[1,2)', expected a final ']'"),
    ("(1,)", "a list has an empty element: found '(1,)'"),
    ("( )", "a list has an empty element: found '( )'"),
    ("9223372036854775808", "an integer is out of range: found 9223372036854775808, expected 64 bits"),
    (
        "1" * 65,
        f"a number is too long: found {'1' * 30!r}...{'1' * 15!r} (65 characters), expected at most 64 characters",
    ),
    ("(1,99999999999999999999)", "an integer is out of range: found 99999999999999999999, expected 64 bits"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text for text, _ in REFUSED])
def test_malformed_value_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParamSyntaxError) as caught:
        parse_parameter("key", text)
    assert str(caught.value) == message


WRITTEN: list[tuple[Parameter, str]] = [
    (None, "None"),
    (True, "True"),
    (3, "3"),
    (0.0, "0.0"),
    (-0.0, "-0.0"),
    (1.0, "1.0"),
    (0.1, "0.1"),
    (1e-5, "1.000000e-5"),
    (1e-4, "0.0001"),
    (1e30, "1.000000e30"),
    (100000.0, "100000.0"),
    (1e6, "1.000000e6"),
    (0.333333343, "0.333333343"),
    (-3.40282347e38, "-3.40282347e38"),
    (0.1 + 0.2, "0.30000000000000004"),
    (NAN, "nan"),
    (-math.inf, "-inf"),
    ((1, 2), "(1,2)"),
    ((0.5, 2.0), "(0.5,2.0)"),
    (1 - 2j, "1.0+-2.0j"),
    ("zeros", "zeros"),
]


@pytest.mark.parametrize(("value", "text"), WRITTEN, ids=[text for _, text in WRITTEN])
def test_value_is_spelled_as_the_converter_does(value: Parameter, text: str) -> None:
    assert format_parameter(value) == text


@given(value=parameters)
def test_written_value_reads_as_itself(value: Parameter) -> None:
    assert same(parse_parameter("key", format_parameter(value)), value)


@pytest.mark.parametrize(
    "pair", [(1, 1.0), (1, True), (0.0, -0.0), ((1,), (1.0,)), ((1,), (1, 2)), ("1", 1), (None, ())]
)
def test_values_of_different_kind_or_content_differ(pair: tuple[Parameter, Parameter]) -> None:
    assert not same(*pair)
