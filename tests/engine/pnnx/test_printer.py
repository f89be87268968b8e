"""Graph to text: the converter's layout, and no graph that would be read as another."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.errors import ParamSyntaxError
from engine.pnnx import Attribute, Graph, Operator, format_param
from engine.pnnx.param import parse_param
from engine.tensor import DTYPES, TensorSpec

IN, OUT = Operator("pnnx.Input", "in", (), ("0",)), Operator("pnnx.Output", "out", ("0",))
OP = Operator("F.f", "f", ("0",), ("1",))
F32 = DTYPES["f32"]


def graph(operator: Operator) -> Graph:
    return Graph([IN, operator, OUT])


def test_text_has_the_layout_of_the_converter() -> None:
    data = np.zeros((2, 3), np.float32)
    weight = Attribute(data.shape, data.dtype, data)
    operator = Operator(
        "F.scaled_dot_product_attention",
        "l",
        ("0", "0"),
        ("1",),
        {"z": True, "alpha": 1.0, "expr": "my key"},
        {"weight": weight, "bias": weight},
        ("input", "other"),
    )
    text = format_param(Graph([IN, operator, OUT], {"0": TensorSpec((None, 3), F32)}, {"1": (2,)}))
    assert text == (
        "7767517\n"
        "3 2\n"
        "pnnx.Input               in                       0 1 0 #0=(?,3)f32\n"
        "F.scaled_dot_product_attention l                        2 1 0 0 1 alpha=1.0 expr=my key z=True"
        " @bias=(2,3)f32 @weight=(2,3)f32 $input=0 $other=0 #0=(?,3)f32 #0=(?,3)f32 #1=(2)null\n"
        "pnnx.Output              out                      1 0 0 #0=(?,3)f32\n"
    )


UNREADABLE: list[tuple[dict[str, Any], str]] = [
    ({"params": {"a": "12"}}, "graph: 'f': parameter 'a' = '12' would not be read as it is written"),
    ({"params": {"a": "None"}}, "graph: 'f': parameter 'a' = 'None' would not be read as it is written"),
    ({"params": {"a": "inf"}}, "graph: 'f': parameter 'a' = 'inf' would not be read as it is written"),
    ({"params": {"a": "two  blanks"}}, "graph: 'f': parameter 'a' = 'two  blanks' would not be read as it is written"),
    ({"params": {"a": ()}}, "graph: 'f': parameter 'a' = '()' would not be read as it is written"),
    ({"params": {"a": ("x,y",)}}, "graph: 'f': parameter 'a' = \"('x,y',)\" would not be read as it is written"),
    ({"params": {"expr": 3}}, "graph: 'f': parameter 'expr' = '3' would not be read as it is written"),
    ({"params": {"a": "b c=1"}}, "graph: 'f': a parameter would not be read as it is written"),
    ({"params": {"a": "b @w=(1)f32"}}, "graph: 'f': an attribute would not be read as it is written"),
    ({"params": {"a": "b #0=(1)f32"}}, "graph: 'f': parameter 'a' = 'b #0=(1)f32' would not be read as it is written"),
    ({"params": {"$a": "0"}}, "graph: 'f': labels would not be read as it is written"),
    ({"type": "Input"}, "graph line 4: wrong operand counts of pnnx.Input: found 1 inputs and 1 outputs, "
     "expected 0 inputs and 1 outputs"),
    ({"type": "Expression"}, "graph: 'f': type would not be read as it is written"),
    ({"inputs": ("0", "0"), "labels": (None, "a")}, "graph: 'f': labels would not be read as it is written"),
    ({"labels": ("a", "b")}, "graph: 'f': labels would not be read as it is written"),
    ({"name": "a b"}, "graph line 4: not an operand count: found 'b', expected a decimal number"),
    ({"name": "a\nb"}, "graph line 4: too few words: found 'F.f                      a', "
     "expected type, name and two counts"),
    ({"name": "\ud800"}, "graph: not a text: found '\\ud800'"),
    ({"name": "in"}, "graph: 'in': name would not be read as it is written"),
    ({"inputs": ("9",), "labels": (None,)}, "graph line 4: an operand is used before it is produced: found '9'"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), UNREADABLE, ids=[str(changes) for changes, _ in UNREADABLE])
def test_graph_the_format_cannot_express_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParamSyntaxError) as caught:
        format_param(graph(replace(OP, **changes)))
    assert str(caught.value) == message


def test_annotation_of_a_dtype_the_format_has_not_is_refused() -> None:
    with pytest.raises(ParamSyntaxError) as caught:
        format_param(Graph([IN, OUT], {"0": TensorSpec((2,), np.dtype(np.uint16))}))
    assert str(caught.value) == "graph: annotation of '0': the format cannot express the dtype: found uint16"


LOST = [
    Graph([IN, OUT], {"9": TensorSpec((2,), F32)}),
    Graph([IN, OUT], {"0": TensorSpec((2,), F32)}, {"0": (2,)}),
    Graph([IN, OUT], {"0": TensorSpec((2,), F32)}, {}, {"0"}),
]


@pytest.mark.parametrize("source", LOST)
def test_annotation_that_would_be_lost_is_refused(source: Graph) -> None:
    with pytest.raises(ParamSyntaxError, match="an annotation cannot be kept"):
        format_param(source)


def test_operators_compare_by_kind_of_parameter_and_not_by_line() -> None:
    nan = replace(OP, params={"a": math.nan}, line=3)
    assert nan == replace(OP, params={"a": float("nan")}, line=9)
    assert replace(OP, params={"a": 1}) != replace(OP, params={"a": 1.0})
    assert OP != "F.f"


def test_2000_operators_are_read_as_written() -> None:
    operators = [IN] + [replace(OP, name=f"f{i}", inputs=(str(i),), outputs=(str(i + 1),)) for i in range(2000)]
    source = Graph([*operators, OUT], {str(i): TensorSpec((1, None, 3), F32) for i in range(2001)})
    assert parse_param(format_param(source).encode(), "m").graph == source
