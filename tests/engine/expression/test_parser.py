"""Texts become trees, damaged ones too, and everything else is refused at its column."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import EngineError, ExpressionError
from engine.expression import (
    Call,
    Input,
    List,
    Literal,
    Node,
    check_arity,
    evaluate,
    explain,
    format,
    infer,
    infix,
    inputs,
    parse,
    postorder,
)
from engine.expression.parser import MAX_DEPTH, MAX_LENGTH
from tests.engine.expression.strategies import damaged, steady, texts, trees, values

CASES = Path(__file__).parents[4] / "shared" / "corpus" / "cases"
INPUT = Input(0)


@given(tree=trees)
@steady
def test_printed_trees_parse_to_themselves(tree: Node) -> None:
    assert parse(format(tree)) == tree


@given(tree=values, data=st.data())
@steady
def test_lost_parentheses_do_not_change_the_tree(tree: Node, data: st.DataObject) -> None:
    assert parse(data.draw(damaged(tree))) == tree


@pytest.mark.parametrize(
    ("text", "sound"),
    [
        ("log1p,@0", "log1p(@0)"),
        ("add(mul(log1p,@0),2),1", "add(mul(log1p(@0),2),1)"),
        ("expm1,add(@0,log1p),mul(@0,3)", "expm1(add(@0,log1p(mul(@0,3))))"),
        ("sub(log1p,@0),log1p,mul(@0,2)", "sub(log1p(@0),log1p(mul(@0,2)))"),
        ("add(@1,,mul(@2,2))", "add(@1,mul(@2,2))"),
        ("torch.int,size(@0,1)", "torch.int(size(@0,1))"),
        ("[log1p,@0,@1]", "[log1p(@0),@1]"),
        ("[log1p,@0,size,@1]", "[log1p(@0),size(@1)]"),
        ("log1p,size,@0", "log1p(size(@0))"),
        ("add( @0 , 1 )", "add(@0,1)"),
    ],
)
def test_texts_converters_damage_are_understood(text: str, sound: str) -> None:
    assert format(parse(text)) == sound


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("None", None),
        ("True", True),
        ("False", False),
        ("0", 0),
        ("-7", -7),
        ("9223372036854775807", 2**63 - 1),
        ("1.", 1.0),
        (".5", 0.5),
        ("2.000000e+00", 2.0),
        ("1e-5", 1e-5),
        ("1e999", math.inf),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("nan", math.nan),
        ("nan.0", math.nan),
        ("-nan.0", math.nan),
        ("2.000000e+00+3.000000e+00j", 2 + 3j),
        ("5.000000e-01-2.500000e-01j", 0.5 - 0.25j),
        ("1.0e+00+-2.0e+00j", 1 - 2j),
        ("nan+infj", complex(math.nan, math.inf)),
        ("-2j", complex(0, -2)),
        ("linear", "linear"),
        ("my key", "my key"),
        ("floor", "floor"),
        ("1_000", "1_000"),
        ("infinity", "infinity"),
        ("٣", "٣"),
        ("@", "@"),
        ("@-1", "@-1"),
    ],
)
def test_single_words_are_literals(text: str, value: object) -> None:
    assert parse(text) == Literal(value)  # type: ignore[arg-type]


def test_lists_nest_and_hold_anything() -> None:
    tree = List((Literal(None), List((Literal(0), Literal(1))), Call("neg", (INPUT,)), Literal("ij"), List(())))
    assert parse("[None,[0,1],neg(@0),ij,[]]") == tree


TOO_DEEP = "neg(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1: the expression ends too early, expected a value"),
        ("  ", "column 1: the expression ends too early, expected a value"),
        ("(", "column 1: unexpected text: found '(', expected a value"),
        ("]", "column 1: unexpected text: found ']', expected a value"),
        ("()", "column 1: unexpected text: found '(', expected a value"),
        ("add(@0", "column 7: the expression ends too early, expected ',' or ')'"),
        ("add(@0,)", "column 8: unexpected text: found ')', expected a value"),
        ("add()", "column 5: unexpected text: found ')', expected a value"),
        ("add(@0,@1,@2)", "column 1: add has the wrong number of arguments: found 3, expected 2"),
        ("neg(size(@0,1,2))", "column 5: size has the wrong number of arguments: found 3, expected 1 or 2"),
        ("neg(flor(@0))", "column 5: unknown function: found 'flor', expected a function such as 'floor'"),
        ("@0(1)", "column 1: unknown function: found '@0', expected a function such as 'add'"),
        ("nan()", "column 1: unknown function: found 'nan', expected a function such as 'tan'"),
        ("mul(2,add(pi,@0))", "column 7: argument 1 of add is not a number: found 'pi', expected a tensor or a number"),
        ("add(@0,None)", "column 1: argument 2 of add is not a number: found None, expected a tensor or a number"),
        ("add([1],2)", "column 1: argument 1 of add is not a number: found a list, expected a tensor or a number"),
        ("[1,2", "column 5: the expression ends too early, expected ',' or ']'"),
        ("[1;2]3", "column 6: unexpected text: found '3', expected the end of the expression"),
        ("1,2", "column 2: unexpected text: found ',', expected the end of the expression"),
        ("add(1,2),3", "column 9: unexpected text: found ',', expected the end of the expression"),
        ("sub(log1p,@0)", "column 14: the expression ends too early, expected a value"),
        ("log1p,@0,@1", "column 10: unexpected text: found '@1', expected the end of the expression"),
        ("log1p,]", "column 7: unexpected text: found ']', expected a value"),
        ("[log1p,@0", "column 10: the expression ends too early, expected a value"),
        ("9223372036854775808", "column 1: the integer is too large: found '9223372036854775808', "
         "expected one of 64 bits"),
        ("@1234567890", "column 1: the input's number is too large: found '@1234567890', expected an input such as @0"),
        ("x" * 50 + "(1)", f"column 1: unknown function: found '{'x' * 40}...', expected a function such as 'add'"),
        (TOO_DEEP, f"column {4 * MAX_DEPTH + 1}: the expression is too deep: found 'neg', "
         "expected at most 2000 open calls"),
        ("1" * (MAX_LENGTH + 1), "the expression is too long: found 1,000,001 characters, expected at most 1,000,000"),
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_malformed_text_is_refused_at_its_column(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert str(caught.value) == message


@given(text=texts)
@steady
def test_any_text_is_a_tree_or_an_error(text: str) -> None:
    try:
        tree = parse(text)
    except ExpressionError:
        return
    infix(tree), explain(tree), repr(tree)
    for run in (evaluate, infer):
        try:
            run(tree, [2, 3.5])
        except EngineError:
            continue


def test_long_chains_are_read_printed_and_run() -> None:
    text = "add(" * 1_000 + "@0" + ",1)" * 1_000
    tree = parse(text)
    assert format(tree) == text
    assert evaluate(tree, [5]) == 1_005


def test_trees_of_the_greatest_depth_compare_hash_and_print() -> None:
    text = "neg(" * MAX_DEPTH + "@0" + ")" * MAX_DEPTH
    tree, again = parse(text), parse(text + " ")
    assert tree is not again
    assert tree == again
    assert hash(tree) == hash(again)
    assert len(repr(tree).split()) == MAX_DEPTH + 1
    assert infix(tree).count("-") == MAX_DEPTH
    assert len(explain(tree).splitlines()) == MAX_DEPTH + 1


def test_inputs_are_collected_and_counted() -> None:
    tree = parse("[add(@0,@3),@3,1]")
    assert inputs(tree) == {0, 3}
    check_arity(tree, 4)
    with pytest.raises(ExpressionError, match="found @3, expected @0 to @2"):
        check_arity(tree, 3)


def test_postorder_puts_arguments_before_their_function() -> None:
    assert [node.label[-1] for node in postorder(parse("sub(@0,mul(@1,2))"))] == ["@0", "@1", "2", "mul", "sub"]


@pytest.mark.corpus
@pytest.mark.skipif(not CASES.exists(), reason="the shared corpus is not here")
def test_every_expression_of_the_corpus_is_read_and_written() -> None:
    found = {
        word.removeprefix("expr=")
        for param in CASES.glob("*/model.pnnx.param")
        for word in param.read_text().split()
        if word.startswith("expr=")
    }
    assert len(found) >= 30
    for text in found:
        assert parse(format(parse(text))) == parse(text)
