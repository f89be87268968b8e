"""Quotients, remainders, powers and bits of integers, also where processors refuse: the reference's answers."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Session
from engine.errors import EngineError
from engine.pnnx import Operator
from engine.tensor import Array
from tests.engine.compiler.lowering.agreeing import check, everywhere, net_of
from tests.engine.graph.build import op

RANDOM = np.random.default_rng(41)
DTYPES = ["uint8", "int8", "int16", "int32", "int64"]
DIVISIONS = [
    ("torch.floor_divide", {}), ("torch.remainder", {}), ("torch.fmod", {}), ("torch.div", {"rounding_mode": "floor"}),
    ("torch.div", {"rounding_mode": "trunc"}), ("torch.div", {}), ("Mod", {"fmod": 0}), ("Mod", {"fmod": 1}),
]  # fmt: skip


def edges(dtype: str) -> Array:
    """Numbers at the ends, around zero, and some between."""
    ends = np.iinfo(dtype)
    near = [0, 1, 2, 3, 7, ends.max, ends.max - 1, ends.max // 2, ends.min, ends.min + 1]
    signed = [-1, -2, -3, -10] if ends.min else [200]
    return np.array([*near, *signed, *RANDOM.integers(ends.min, ends.max, 5, dtype)], dtype)


def pairs(dtype: str) -> tuple[Array, Array]:
    """Return every edge value by every edge value but 0: (19, 1) and (18,)."""
    found = edges(dtype)
    return found[:, None], found[found != 0]


def of(operands: str, *kinds: tuple[str, dict[str, object]]) -> list[Operator]:
    return [op(type_, f"it_{k}", operands, f"result_{k}", **given) for k, (type_, given) in enumerate(kinds)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_integers_divided_by_integers_of_a_run(dtype: str) -> None:
    everywhere(pairs(dtype), *of("0 1", *DIVISIONS), tolerance=1e-6)


@pytest.mark.parametrize(("one", "other"), [("int32", "int64"), ("uint8", "int8"), ("bool", "int32"), ("int8", "bool")])
def test_integers_of_two_dtypes_are_divided_in_what_they_promote_to(one: str, other: str) -> None:
    x, y = (np.array([0, 1, 1, 0, 1], bool) if each == "bool" else edges(each) for each in (one, other))
    check([x[:, None], y[y != 0]], *of("0 1", *DIVISIONS[:6]), tolerance=1e-6)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
def test_integers_divided_by_numbers(dtype: str) -> None:
    numbers = (1, 3, 7, 64, 100, -1, -3)
    kinds = [(type_, {**given, "other": each}) for each in numbers for type_, given in DIVISIONS[:6]]
    check([edges(dtype)], *of("0", *kinds), tolerance=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "int64"])
@pytest.mark.parametrize("type_", ["torch.floor_divide", "torch.remainder", "torch.fmod", "torch.div"])
def test_a_zero_among_divisors_is_refused_in_the_words_of_the_reference(type_: str, dtype: str) -> None:
    given = {"rounding_mode": "trunc"} if type_ == "torch.div" else {}
    x = np.full((3, 70), np.iinfo(dtype).min, dtype)
    for place in ((0, 0), (1, 33), (2, 69)):
        y = np.full((3, 70), -1, dtype)
        net = net_of([op(type_, "it", "0 1", "result", **given)], [x, y])
        session = Session(net, backend="compiled", cache=None, threads=1)
        (before,) = session.run([x, y])
        y[place] = 0
        with pytest.raises(EngineError, match="division by zero"):
            session.run([x, y])
        y[place] = -1
        np.testing.assert_array_equal(session.run([x, y])[0], before)
    assert not [row for row in session.describe()["operators"] if row.get("why")]


def test_a_zero_beside_the_elements_is_not_seen() -> None:
    """Vectors are wider than the last elements of a row: what is not there divides by nothing."""
    for size in (1, 2, 3, 5, 7, 9, 17):
        everywhere([np.arange(size), np.full(size, 3)], op("torch.floor_divide", "it", "0 1", "result"))


@pytest.mark.parametrize("number", [0, 0.0])
def test_a_number_that_is_zero_is_left_to_the_reference(number: float) -> None:
    x = np.arange(5)
    net = net_of([op("torch.remainder", "it", "0", "result", other=number), op("torch.neg", "n", "0", "more")], [x])
    session = Session(net, backend="compiled", cache=None)
    if isinstance(number, int):
        with pytest.raises(EngineError, match="division by zero"):
            session.run([x])
    else:
        assert np.isnan(session.run([x])[0]).all()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_zeros_that_onnx_divides_by_give_zero(dtype: str) -> None:
    x, y = edges(dtype)[:, None], edges(dtype)
    everywhere([x, y], *of("0 1", *DIVISIONS[6:]))


def test_operands_of_divisions_lie_in_any_order() -> None:
    x, y = RANDOM.integers(-50, 50, (5, 6, 7)), RANDOM.integers(1, 9, (7, 1, 5))
    turned = op("torch.permute", "turn", "0", "turned", dims=(2, 1, 0))
    check(
        [x, y],
        turned,
        *of("turned 1", *DIVISIONS[:6]),
        tolerance=1e-6,
    )
    check([x, np.array(-7)], *of("0 1", *DIVISIONS[:6]), tolerance=1e-6)
    check([np.array(5), np.array(3)], *of("0 1", *DIVISIONS[:6]), tolerance=1e-6)
    deep = RANDOM.integers(1, 9, (2, *[1] * 29, 3))  # as many axes as have kernels
    check([deep], op("torch.floor_divide", "it", "0", "result", other=2))


def test_nothing_is_divided_by_nothing() -> None:
    net = net_of([op("torch.floor_divide", "it", "0 1", "result")], [np.zeros((0, 3), np.int64)] * 2)
    assert Session(net, backend="compiled", cache=None).run([np.zeros((0, 3), np.int64)] * 2)[0].shape == (0, 3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_of_integers(dtype: str) -> None:
    check([edges(dtype)], *of("0", *(("torch.pow", {"other": each}) for each in (1, 2, 3, 7))))


def test_powers_of_floats_by_integers() -> None:
    x, counts = RANDOM.standard_normal((7, 1)).astype(np.float32), np.arange(-3, 5)
    check([x, counts], op("Pow", "it", "0 1", "result"), tolerance=1e-6)


@pytest.mark.parametrize("source", ["bool", "uint8", "int8", "int32", "int64", "uint16", "uint32"])
def test_conversions_of_integers_without_a_sign(source: str) -> None:
    x = np.array([True, False]) if source == "bool" else edges(source)
    codes = (1, 2, 3, 4, 5, 6, 7, 9, 11, 12)
    own = [code for code in codes if code != {"uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9}.get(source)]
    everywhere([x], *of("0", *(("Cast", {"to": code}) for code in own)), tolerance=1e-7)
