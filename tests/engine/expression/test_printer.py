"""Trees as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given

from engine.errors import ExpressionError
from engine.expression import Call, Input, List, Literal, Node, explain, format, infix, parse
from tests.engine.expression.strategies import steady, words


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("sub(add(@0,@1),mul(@2,3))", "(@0 + @1) - @2 * 3"),
        ("add(add(@0,1),2)", "@0 + 1 + 2"),
        ("add(@0,add(1,2))", "@0 + (1 + 2)"),
        ("sub(@0,sub(@1,@2))", "@0 - (@1 - @2)"),
        ("div(mul(@0,2),3)", "(@0 * 2) / 3"),
        ("mul(add(@0,1),2)", "(@0 + 1) * 2"),
        ("pow(pow(@0,2),3)", "(@0 ** 2) ** 3"),
        ("pow(@0,pow(2,3))", "@0 ** (2 ** 3)"),
        ("pow(neg(@0),-2)", "(-@0) ** (-2)"),
        ("pow(-2,@0)", "(-2) ** @0"),
        ("neg(pow(@0,2))", "-@0 ** 2"),
        ("neg(neg(@0))", "-(-@0)"),
        ("neg(-0.0)", "-(-0.0)"),
        ("mul(@0,-1)", "@0 * -1"),
        ("mul(@0,1-2j)", "@0 * (1.0-2.0j)"),
        ("and(or(@0,1),xor(lshift(@1,2),3))", "(@0 | 1) & (@1 << 2 ^ 3)"),
        ("floor_divide(@0,remainder(@1,2))", "@0 // (@1 % 2)"),
        ("rshift(add(@0,1),2)", "@0 + 1 >> 2"),
        ("sqrt(max(@0,size(@1,0)))", "sqrt(max(@0, size(@1, 0)))"),
        ("[None,[0,1],size(@0)]", "[None, [0, 1], size(@0)]"),
        ("linear", "linear"),
        ("nan.0", "nan"),
    ],
)
def test_infix_shows_operators_with_the_parentheses_they_need(text: str, written: str) -> None:
    assert infix(parse(text)) == written


def test_infix_names_the_inputs_it_is_told() -> None:
    assert infix(parse("add(mul(@0,@1),@2)"), ["x", "scale"]) == "x * scale + @2"


def test_explain_draws_one_node_a_line() -> None:
    picture = "list\n├─ sub\n│  ├─ @0\n│  └─ mul\n│     ├─ @1\n│     └─ 2.5\n├─ None\n└─ word"
    assert explain(parse("[sub(@0,mul(@1,2.5)),None,word]")) == picture


def test_repr_is_the_order_a_stack_machine_runs() -> None:
    assert repr(parse("[sub(@0,mul(@1,2)),None]")) == "<@0 @1 2 mul sub None []>"


@given(word=words)
@steady
def test_words_are_printed_as_they_parse_or_refused(word: str) -> None:
    tree = Literal(word)
    try:
        text = format(tree)
    except ExpressionError:
        return
    assert parse(text) == tree


@pytest.mark.parametrize(
    "tree",
    [
        Literal("a,b"),
        Literal(" a"),
        Literal(""),
        Literal("12"),
        Literal("nan"),
        Literal("None"),
        Literal("@0"),
        Literal("["),
        List((Literal("floor"),)),
        List((Call("neg", (Input(0),)), Literal("a(b"))),
    ],
    ids=repr,
)
def test_words_no_text_stands_for_are_refused(tree: Node) -> None:
    with pytest.raises(ExpressionError, match="the word cannot be written"):
        format(tree)
