"""Complex numbers of float32: what becomes of operators on them, and the reference's answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session, TensorSpec
from tests.engine.graph.build import built, op

RANDOM = np.random.default_rng(17)
SIZES = (3, 5, 7)


def complex_array(*sizes: int) -> np.ndarray:
    parts = RANDOM.standard_normal((*sizes, 2)).astype(np.float32)
    return parts.view(np.complex64)[..., 0]


def session_of(type_: str, inputs: list[np.ndarray], **given: Any) -> Session:
    """Return a session of one operator whose answer agrees with the reference."""
    ports = [op("pnnx.Input", f"in_{k}", "", str(k)) for k, _ in enumerate(inputs)]
    specs: dict[str, Any] = {f"_{k}": TensorSpec(each.shape, each.dtype) for k, each in enumerate(inputs)}
    names = " ".join(str(k) for k, _ in enumerate(inputs))
    # Where nothing has a kernel nothing is compiled: another operator beside it has.
    other = op("torch.sign", "other", "x", "y"), op("pnnx.Input", "in_x", "", "x"), op("pnnx.Output", "out_y", "y")
    net = built(
        *ports,
        op(type_, "it", names, "z", **given),
        op("pnnx.Output", "out", "z"),
        *other,
        _x=(3,),
        **specs,
    )
    session = Session(net, cache=None)
    arrays = [*inputs, np.ones(3, np.float32)]
    found, wanted = (each.run(arrays)[0] for each in (session, Session(net, backend="reference")))
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    return session


def row(session: Session) -> dict[str, Any]:
    (found,) = (each for each in session.describe()["operators"] if each["name"] == "it")
    return dict(found)


@pytest.mark.parametrize(
    "text",
    [
        "mul(@0,@1)", "add(@0,mul(@1,2.5))", "sub(@0,@2)", "div(@1,add(@2,3.0))", "abs(@0)", "add(abs(mul(@0,@1)),@2)",
        "log1p(abs(@0))", "div(abs(@0),add(abs(@1),abs(@0)))", "square(@0)", "neg(reciprocal(@0))", "pow(@0,2)",
        "mul(exp(@2),@0)", "mul(@0,abs(@0))", "add(abs(@2),abs(@1))", "sub(div(@0,sqrt(add(@2,1))),mul(@2,@2))",
    ],
)  # fmt: skip
def test_expressions_are_maps_also_of_real_parts_and_with_real_numbers(text: str) -> None:
    inputs = [complex_array(*SIZES), complex_array(*SIZES[1:]), RANDOM.random(SIZES).astype(np.float32)]
    assert row(session_of("pnnx.Expression", inputs, expr=text))["kernel"] == "map"


@pytest.mark.parametrize(
    "text",
    [
        "mul(@0,add(cos(@1),mul(sin(@1),0.000000e+00+1.000000e+00j)))",
        "add(@0,1.5e+00-2.0e+00j)",
        "abs(mul(@1,add(@0,0.0e+00+1.0e+00j)))",
        "div(0.0e+00+1.0e+00j,add(@0,3.0e+00-1.0e+00j))",
    ],
)
def test_complex_numbers_may_be_written_in_expressions_of_real_tensors(text: str) -> None:
    inputs = [RANDOM.random(SIZES).astype(np.float32) for _ in range(2 if "@1" in text else 1)]
    assert row(session_of("pnnx.Expression", inputs, expr=text))["kernel"] == "map"


def test_a_quotient_of_denormal_numbers_is_no_infinity() -> None:
    session = session_of("aten::true_divide", [np.full((2, 3), 3e-41 - 5e-41j, np.complex64) for _ in range(2)])
    tiny, ones = np.full((2, 3), 1e-41, np.complex64), np.ones(3, np.float32)
    for x, right in ((tiny * 4, 4.0), (tiny, 1.0), (np.ones_like(tiny), complex(np.inf, 0.0))):
        np.testing.assert_allclose(session.run([x, tiny, ones])[0], np.full((2, 3), right), rtol=1e-5)


@pytest.mark.parametrize("type_", ["torch.conj", "torch.angle", "torch.abs", "torch.sgn", "torch.neg", "torch.square"])
def test_functions_are_maps_and_of_real_numbers_too(type_: str) -> None:
    for x in (complex_array(*SIZES), complex_array(1), complex_array(9, 6)[::2, 1::3]):
        assert row(session_of(type_, [np.ascontiguousarray(x)]))["kernel"] == "map"
        session_of(type_, [np.ascontiguousarray(x.real)])


@pytest.mark.parametrize("text", ["add(@1,abs(exp(@0)))", "exp(@0)", "maximum(@1,abs(sqrt(@0)))"])
def test_functions_that_there_are_none_of_are_the_references(text: str) -> None:
    inputs = [complex_array(*SIZES), RANDOM.random(SIZES).astype(np.float32)]
    assert "complex" in row(session_of("pnnx.Expression", inputs, expr=text))["why"]


def test_lengths_and_angles_become_complex_numbers_and_their_parts_again() -> None:
    lengths, angles = (RANDOM.random(SIZES).astype(np.float32) for _ in range(2))
    assert row(session_of("torch.polar", [lengths, angles[0]]))["kernel"] == "map"
    assert row(session_of("torch.complex", [lengths, angles[0]]))["kernel"] == "map"
    assert row(session_of("torch.view_as_complex", [RANDOM.random((*SIZES, 2)).astype(np.float32)])).get("why") is None


def test_numbers_of_float64_are_the_references() -> None:
    inputs = [complex_array(*SIZES).astype(np.complex128)]
    for type_ in ("torch.conj", "torch.abs"):
        assert "why" in row(session_of(type_, inputs))


def test_what_is_not_finite_does_not_spread_from_real_numbers() -> None:
    """Infinity squared is infinite; as a complex number it is not a number."""
    x = np.array([np.inf, -np.inf, np.nan, 1, 3e38, 0], np.float32)
    inputs = [complex_array(6), x]
    for text in ("mul(mul(@1,@1),abs(@0))", "add(abs(@0),mul(@1,@1))", "mul(@0,mul(@1,@1))"):
        assert row(session_of("pnnx.Expression", inputs, expr=text))["kernel"] == "map"
