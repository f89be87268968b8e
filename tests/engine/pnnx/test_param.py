"""The text file: what is read, and with which words everything else is refused."""

from __future__ import annotations

import pytest

from engine.errors import ModelFormatError, ParamSyntaxError, WeightsError
from engine.pnnx import Graph, Operator, Parameter
from engine.pnnx.param import MAX_LINE, parse_param
from engine.pnnx.shapes import Declaration
from engine.tensor import DTYPES, TensorSpec
from tests.engine.pnnx.build import param

F32 = DTYPES["f32"]
INPUT, OUTPUT = "pnnx.Input in 0 1 0", "pnnx.Output out 1 0 0"


def graph(*lines: str) -> Graph:
    return parse_param(param(lines), "m.param").graph


def middle(line: str) -> Operator:
    """An operator between an input 0, an input 1 and an output."""
    return graph(INPUT, "pnnx.Input in1 0 1 1", line, OUTPUT).operators[2]


def test_operator_is_read_with_all_its_parts() -> None:
    file = parse_param(
        param(
            [
                "pnnx.Input               pnnx_input_0             0 1 0 #0=(?,3,8,8)f32",
                "nn.Conv2d                conv1                    1 1 0 1 bias=False stride=(1,2) "
                "@weight=(4,3,3,3)f16 "
                "$input=0 #0=(?,3,8,8)f32 #1=(?,4,8,4)f32",
                "pnnx.Output              pnnx_output_0            1 0 1",
            ]
        ),
        "m.param",
    )
    params: dict[str, Parameter] = {"bias": False, "stride": (1, 2)}
    conv = Operator("nn.Conv2d", "conv1", ("0",), ("1",), params, {}, ("input",), 4)
    assert file.graph.operators[1] == conv
    assert file.graph.operators[1].line == 4
    assert file.graph.annotations == {"0": TensorSpec((None, 3, 8, 8), F32), "1": TensorSpec((None, 4, 8, 4), F32)}
    assert file.declarations == [{}, {"weight": Declaration((4, 3, 3, 3), "f16")}, {}]


def test_types_of_the_2021_dialect_get_their_prefix() -> None:
    operators = graph(
        "Input x 0 1 0", "Attribute a 0 1 1 @data=(2)f32", "Expression e 2 1 0 1 2 expr=add(@0,@1)", "Output y 1 0 2"
    ).operators
    assert [operator.type for operator in operators] == [
        "pnnx.Input",
        "pnnx.Attribute",
        "pnnx.Expression",
        "pnnx.Output",
    ]


def test_annotations_and_labels_may_all_be_missing() -> None:
    assert middle("F.relu r 1 1 0 2").labels == (None,)


def test_lines_may_end_as_version_control_leaves_them() -> None:
    text = param([INPUT, "F.elu r 1 1 0 1 alpha=1.0", OUTPUT])
    assert parse_param(text.replace(b"\n", b"\r\n"), "m").graph == parse_param(text, "m").graph


def test_blank_lines_may_follow_and_the_last_line_end_may_be_missing() -> None:
    text = param([INPUT, OUTPUT])
    for variant in (text + b"\n \n", text[:-1]):
        assert parse_param(variant, "m").graph == parse_param(text, "m").graph


def test_names_may_hold_any_character_but_blanks() -> None:
    operator = middle("aten::sort /l/Expand_0:é\u00a0\u2028 1 1 0 x.1")
    assert operator.name == "/l/Expand_0:é\u00a0\u2028"
    assert operator.outputs == ("x.1",)


def test_blank_in_a_value_continues_the_parameter_before_it() -> None:
    operator = middle("torch.einsum e 2 1 0 1 2 equation=b c i j , b c j k -> b c i k other=1 =")
    assert operator.params == {"equation": "b c i j , b c j k -> b c i k", "other": "1 ="}


def test_operand_used_twice_takes_its_labels_from_left_to_right() -> None:
    assert middle("torch.matmul m 2 1 0 0 2 $input=0 $other=0").labels == ("input", "other")


def test_unlabelled_inputs_are_skipped() -> None:
    assert middle("F.f m 3 1 0 1 0 2 $a=1 $b=0").labels == (None, "a", "b")


def test_labels_out_of_order_find_their_inputs() -> None:
    assert middle("F.f m 3 1 0 1 1 2 $b=1 $a=0 $c=1").labels == ("a", "b", "c")


def test_entries_may_come_in_any_order() -> None:
    mixed = middle("F.f m 2 1 0 1 2 #2=(1)f32 $a=0 @w=(2)f32 z=1 $b=1 y=2")
    assert mixed == middle("F.f m 2 1 0 1 2 y=2 z=1 @w=(2)f32 $a=0 $b=1 #2=(1)f32")


def test_symbolic_dimension_is_an_open_one() -> None:
    assert graph("pnnx.Input in 0 1 0 #0=(%n,?,2)f32", OUTPUT).annotations["0"] == TensorSpec((None, None, 2), F32)


def test_open_and_symbolic_dimension_agree() -> None:
    read = graph("pnnx.Input in 0 1 0 #0=(%n,2)f32", "pnnx.Output out 1 0 0 #0=(?,2)f32")
    assert read.annotations == {"0": TensorSpec((None, 2), F32)}


def test_annotation_without_dtype_keeps_its_shape() -> None:
    read = graph("pnnx.Input in 0 1 0 #0=(?,2)null", OUTPUT)
    assert (read.untyped, read.annotations) == ({"0": (None, 2)}, {})


def test_complex32_annotation_is_remembered() -> None:
    read = graph("pnnx.Input in 0 1 0 #0=(2)c32", OUTPUT)
    assert (read.complex32, read.annotations["0"].dtype) == ({"0"}, DTYPES["c64"])


HEADERS = [
    (b"", "m.param line 1: not a PNNX file: found '', expected 7767517"),
    (b"7767518\n", "m.param line 1: not a PNNX file: found '7767518', expected 7767517"),
    (b"\xef\xbb\xbf7767517\n", "m.param line 1: not a PNNX file: found '\\ufeff7767517', expected 7767517"),
    (
        b"7767517\n",
        "m.param line 2: the counts are malformed: found '', expected an operator count and an operand count",
    ),
    (
        b"7767517\n2\n",
        "m.param line 2: the counts are malformed: found '2', expected an operator count and an operand count",
    ),
    (
        b"7767517\n-1 2\n",
        "m.param line 2: the counts are malformed: found '-1 2', expected an operator count and an operand count",
    ),
    (
        b"7767517\n2 1 1\n",
        "m.param line 2: the counts are malformed: found '2 1 1', expected an operator count and an operand count",
    ),
    (param([INPUT, OUTPUT], operators=3), "m.param: operators are missing: found 2, expected 3"),
    (
        param([INPUT, OUTPUT], operators=1_000_000_000, operands=1_000_000_000),
        "m.param: operators are missing: found 2, expected 1000000000",
    ),
    (
        param([INPUT, OUTPUT], operators=1),
        "m.param line 4: too many lines: found 'pnnx.Output out 1 0 0', expected the 1 operators line 2 counts",
    ),
    (param([INPUT, OUTPUT], operands=2), "m.param line 2: wrong operand count: found 2, expected 1 as made below"),
    (param([INPUT]), "m.param: the graph has no output, expected a pnnx.Output"),
    (param([]), "m.param: the graph has no output, expected a pnnx.Output"),
    (b"7767517\n\xff 1\n", "m.param line 2: not UTF-8: found byte 0xff"),
    (b"7767517\n1 1\na\x00b c 0 0\n", "m.param line 3: a control character: found '\\x00', expected text"),
    (b"7767517\n1 1\na c 0 0 k=a\x0bb\n", "m.param line 3: a control character: found '\\x0b', expected text"),
    (
        b"7767517\n1 1\n" + b"a" * (MAX_LINE + 1),
        "m.param line 3: the line is too long: found 1,048,577 characters, expected at most 1,048,576",
    ),
]


@pytest.mark.parametrize(("text", "message"), HEADERS, ids=[message[:60] for _, message in HEADERS])
def test_malformed_file_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ParamSyntaxError) as caught:
        parse_param(text, "m.param")
    assert str(caught.value) == message


CODES = "f32, f64, f16, bf16, i64, i32, i16, i8, u8, bool, c32, c64, c128"
LINES = [
    ("", "too few words: found '', expected type, name and two counts"),
    ("F.relu r 1", "too few words: found 'F.relu r 1', expected type, name and two counts"),
    ("F.relu r x 1 0 1", "not an operand count: found 'x', expected a decimal number"),
    ("F.relu r -1 1 0 1", "not an operand count: found '-1', expected a decimal number"),
    ("F.relu r 99999999999 1 0 1", "not an operand count: found '99999999999', expected a decimal number"),
    ("F.relu r 999999999 1 0 1", "operands are missing: found 2, expected 1000000000"),
    ("F.relu r 1 1 0", "operands are missing: found 1, expected 2"),
    ("F.relu r 1 2 0 1 k=1", "an entry occurs in place of an operand: found 'k=1'"),
    ("F.relu r 1 1 9 1", "an operand is used before it is produced: found '9'"),
    ("F.relu r 1 1 1 1", "an operand is used before it is produced: found '1'"),
    ("F.relu r 1 1 0 0", "an operand is produced twice: found '0'"),
    ("F.relu r 0 2 1 1", "an operand is produced twice: found '1'"),
    ("F.relu r 1 1 0 1 2", "a word is not in the pool: found '2', expected key=value"),
    ("F.relu r 1 1 0 1 =2", "a word is not in the pool: found '=2', expected key=value"),
    ("F.relu r 1 1 0 1 $a=0 b", "a word is not in the pool: found 'b', expected key=value"),
    ("F.relu r 1 1 0 1 @a=(1)f32 b", "a word is not in the pool: found 'b', expected key=value"),
    ("F.relu r 1 1 0 1 @=(1)f32", "an entry has no name: found '@=(1)f32'"),
    ("F.relu r 1 1 0 1 a=1 a=2", "a parameter is given twice: found 'a'"),
    ("F.relu r 1 1 0 1 a=(1", "parameter 'a': a list is not closed: found '(1', expected a final ')'"),
    ("F.relu r 1 1 0 1 @a=(1)f32 @a=(1)f32", "an attribute is given twice: found 'a'"),
    ("F.relu r 1 1 0 1 @a=1", "attribute 'a': not a shape: found '1', expected dimensions and dtype, as in (1,?,3)f32"),
    (
        "F.relu r 1 1 0 1 @a=(1,?)f32",
        "attribute 'a': an attribute has a dynamic dimension: found '(1,?)f32', expected decimal dimensions",
    ),
    (
        "F.relu r 1 1 0 1 @a=(2147483649)f32",
        "attribute 'a': a dimension is too large: found '2147483649', expected at most 2147483648",
    ),
    (
        "F.relu r 1 1 0 1 @a=(2147483648,2147483648,2)f32",
        "attribute 'a': an attribute is too large: found '(2147483648,2147483648,2)f32', "
        "expected fewer than 2**63 bytes",
    ),
    (
        "F.relu r 1 1 0 1 @a=(0,2147483648,2147483648,2)f32",
        "attribute 'a': an attribute is too large: found '(0,2147483648,2147483648,2)f32', "
        "expected fewer than 2**63 bytes",
    ),
    (
        "F.relu r 1 1 0 1 @a=(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)f32",
        "attribute 'a': too many dimensions: found 17, expected at most 16",
    ),
    ("F.relu r 1 1 0 1 #9=(1)f32", "an annotation names an operand that is not on its line: found '9'"),
    ("F.relu r 1 1 0 1 #1=(1)u16", f"annotation of '1': unknown dtype: found 'u16', expected one of {CODES}, null"),
    ("F.relu r 1 1 0 1 #1=(1)", f"annotation of '1': unknown dtype: found '', expected one of {CODES}, null"),
    ("F.relu r 1 1 0 1 #1=(-1)f32", "annotation of '1': not a dimension: found '-1', expected a decimal number or ?"),
    ("F.relu r 1 1 0 1 #1=(1,)f32", "annotation of '1': not a dimension: found '', expected a decimal number or ?"),
    (
        "F.relu r 1 1 0 1 #0=(3)f32 #0=(4)f32",
        "operand '0' is annotated in two ways: found (4)f32, expected (3)f32 as before",
    ),
    ("F.relu r 1 1 0 1 $a=1", "argument 'a' has no input left to name: found '1'"),
    ("F.relu r 1 1 0 1 $a=0 $b=0", "argument 'b' has no input left to name: found '0'"),
    (
        "pnnx.Input r 1 1 0 1",
        "wrong operand counts of pnnx.Input: found 1 inputs and 1 outputs, expected 0 inputs and 1 outputs",
    ),
    (
        "Output r 0 0",
        "wrong operand counts of pnnx.Output: found 0 inputs and 0 outputs, expected 1 inputs and 0 outputs",
    ),
]


@pytest.mark.parametrize(("line", "message"), LINES, ids=[line[:50] for line, _ in LINES])
def test_malformed_line_is_refused_with_its_number(line: str, message: str) -> None:
    with pytest.raises(ParamSyntaxError) as caught:
        parse_param(param([INPUT, line, OUTPUT], operands=2), "m.param")
    assert str(caught.value) == f"m.param line 4: {message}"


@pytest.mark.parametrize("code", ["null", "u16", "", "F32"])
def test_attribute_of_unknown_dtype_is_refused(code: str) -> None:
    with pytest.raises(WeightsError) as caught:
        parse_param(param([f"pnnx.Attribute a 0 1 0 @data=(1){code}", OUTPUT]), "m.param")
    message = (
        f"m.param line 3: attribute 'data': unknown dtype of an attribute: found {code!r}, expected one of {CODES}"
    )
    assert str(caught.value) == message


def test_attributes_that_share_a_member_are_refused() -> None:
    lines = ["a.b x 0 0 @c.d=(1)f32", "a.b x.c 0 0 @d=(1)f32"]
    with pytest.raises(ParamSyntaxError, match="two attributes have the same name in the archive: found 'x.c.d'"):
        parse_param(param(lines), "m.param")


def test_annotations_of_two_lines_must_agree() -> None:
    lines = ["pnnx.Input in 0 1 0 #0=(3)f32", "pnnx.Output out 1 0 0 #0=(3)f16"]
    with pytest.raises(ParamSyntaxError, match=r"^m.param line 4: operand '0' is annotated in two ways"):
        parse_param(param(lines), "m.param")


def test_long_tokens_are_shortened_in_messages() -> None:
    with pytest.raises(ModelFormatError) as caught:
        parse_param(b"x" * 1000, "m.param")
    assert len(str(caught.value)) < 200


def test_a_line_of_many_operands_and_labels_is_read_in_linear_time() -> None:
    count = 60_000
    line = " ".join(["F.f f", f"{count} 0", *["0"] * count, *["$a=0"] * count])
    assert len(graph(INPUT, line, OUTPUT).operators[1].labels) == count


def test_a_line_of_digits_is_refused_in_linear_time() -> None:
    with pytest.raises(ParamSyntaxError, match="a number is too long"):
        middle(f"F.f f 0 0 a={'1' * 1_000_000}")


@pytest.mark.parametrize("piece", ["1+", "1e5-", "1.", "-", "(", "1,", "nan.0", "=", "@", "a "])
def test_a_line_of_repeated_pieces_is_decided_in_linear_time(piece: str) -> None:
    try:
        middle(f"F.f f 0 0 a={piece * (1_000_000 // len(piece))}")
    except ModelFormatError:
        return
