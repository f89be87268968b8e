"""Expressions and functions of operands of several dtypes: the reference's answers, and its promotion."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Session
from engine.errors import EngineError
from engine.pnnx import Operator
from tests.engine.compiler.lowering.agreeing import check, everywhere, net_of
from tests.engine.compiler.lowering.rules.elementwise.test_integers import edges
from tests.engine.graph.build import op

RANDOM = np.random.default_rng(43)


def expressions(operands: str, *texts: str) -> list[Operator]:
    return [op("pnnx.Expression", f"it_{k}", operands, f"result_{k}", expr=text) for k, text in enumerate(texts)]


def test_bits_and_truths() -> None:
    a, b, c = RANDOM.random((2, 7, 9)) < 0.5, RANDOM.random((7, 9)) < 0.5, RANDOM.random((2, 7, 9)) < 0.5
    everywhere([a, b, c], *expressions(
        "0 1 2", "or(and(@0,@1),@2)", "xor(@0,and(@1,@2))", "mul(add(@0,@1),@2)", "add(add(@0,@1),1)",
        "mul(add(@0,@1),2.5)", "maximum(add(@0,@1),@2)",
    ))  # fmt: skip
    for dtype in ("int8", "uint8", "int32", "int64"):
        x, y = edges(dtype), np.roll(edges(dtype), 3)
        everywhere([x, y], *expressions("0 1", "or(@0,3)", "xor(@0,@1)", "and(add(@0,@1),@1)", "rshift(@0,1)",
                                        "or(and(@0,@1),neg(@1))", "lshift(abs(@0),1)"))  # fmt: skip


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_what_integers_wrap_to_goes_on(dtype: str) -> None:
    x, y = edges(dtype)[:, None], edges(dtype)[edges(dtype) != 0]
    check([x, y], *expressions("0 1", "floor_divide(add(@0,@0),@1)", "remainder(mul(@0,@0),@1)", "max(add(@0,@1),@0)",
                               "rshift(mul(@0,@1),2)", "fmod(sub(@0,@1),@1)", "remainder(@0,neg(@1))"))  # fmt: skip
    check([x, y], *expressions("0 1", "div(add(@0,@0),@1)", "sqrt(abs(mul(@0,@0)))", "add(floor_divide(@0,@1),0.5)"),
          tolerance=1e-6)  # fmt: skip


def test_operands_of_several_dtypes() -> None:
    single, double = RANDOM.standard_normal((4, 5)).astype(np.float32), RANDOM.standard_normal((3, 4, 5))
    whole, narrow, truth = RANDOM.integers(-9, 9, (4, 5)), edges("int8")[:5], RANDOM.random(5) < 0.5
    check([single, double, whole, narrow, truth], *expressions(
        "0 1 2 3 4", "add(@0,@1)", "mul(add(@0,@2),@1)", "add(@4,1)", "add(mul(@2,@3),@4)", "div(@2,3)", "div(@3,@0)",
        "mul(torch.float(@2),@0)", "mul(torch.double(@0),@1)", "torch.int8(mul(@2,100))", "torch.bool(add(@2,@3))",
        "add(torch.int8(mul(@2,100)),@2)", "torch.int(mul(@0,10))", "torch.long(torch.int8(mul(@0,100)))",
        "mul(torch.float(mul(@2,@3)),0.1)", "torch.double(add(@3,@3))", "torch.float(torch.double(@0))",
        "mul(@2,size(@1,0))", "floor_divide(@2,size(@1,2))", "pow(@2,3)", "torch.float(torch.bool(@0))",
    ), tolerance=1e-6)  # fmt: skip


def test_single_numbers_take_the_dtype_of_tensors() -> None:
    wide, narrow = np.array(2**40 + 5), edges("int32")
    check([wide, narrow], *expressions("0 1", "add(@1,@0)", "max(@1,@0)", "remainder(@1,@0)", "and(@1,@0)"))
    check([np.array(1.5), narrow], *expressions("0 1", "add(@1,@0)", "div(mul(@1,2),@0)"))


@pytest.mark.parametrize("divisor", [np.nan, np.inf, -np.inf, 0.0, -0.0])
def test_integers_divided_by_what_is_no_number(divisor: float) -> None:
    x, y = np.array([-3, 0, 4, 2**62]), np.full(4, divisor, np.float32)
    check([x, y], *expressions("0 1", "div(@0,@1)", "remainder(@0,@1)", "fmod(@0,@1)"))


def test_zeros_in_the_middle_of_an_expression_are_refused() -> None:
    x = np.arange(5)
    net = net_of(expressions("0", "add(torch.float(floor_divide(7,sub(@0,3))),0.5)"), [x])
    session = Session(net, backend="compiled", cache=None, threads=1)
    with pytest.raises(EngineError, match="division by zero"):
        session.run([x])
    np.testing.assert_array_equal(session.run([x - 9])[0], 7 // (x - 12) + np.float32(0.5))
    assert not [row for row in session.describe()["operators"] if row.get("why")]
