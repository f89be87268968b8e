"""Operators of other dtypes than float32: the reference's answers, dtypes included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session, TensorSpec
from tests.engine.graph.build import built, op

RANDOM = np.random.default_rng(13)
SHAPES = [(1,), (3, 17), (2, 1, 65)]
DTYPES = ["bool", "uint8", "int8", "int32", "int64", "float32", "float64"]


def values(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == "bool":
        return RANDOM.random(shape) < 0.5
    if dtype.startswith("float"):
        found = RANDOM.standard_normal(shape).astype(dtype)
        found.reshape(-1)[::5] = np.nan
        found.reshape(-1)[1::6] = 0
        return found
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return RANDOM.choice(np.array([low, high, 0, 1, 2, 5, 31], dtype), shape)


def kernel_of(type_: str, inputs: list[np.ndarray], **given: Any) -> str:
    """What computed an operator, where the answer was the reference's to the bit."""
    ports = [op("pnnx.Input", f"in_{k}", "", str(k)) for k, _ in enumerate(inputs)]
    specs = {f"_{k}": TensorSpec(each.shape, each.dtype) for k, each in enumerate(inputs)}
    names = " ".join(str(k) for k, _ in enumerate(inputs))
    net = built(*ports, op(type_, "it", names, "result", **given), op("pnnx.Output", "out", "result"), **specs)
    session = Session(net, cache=None, measure_host=False)
    (found,), (wanted,) = session.run(inputs), Session(net, backend="reference").run(inputs)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)
    rows = {row["name"]: row["kernel"] for row in session.describe()["operators"] if "kernel" in row}
    return "reference" if session.compile_failure else rows["it"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("type_", ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"])
def test_comparisons_and_logic(type_: str, dtype: str) -> None:
    for shape in SHAPES:
        for other in ("bool", dtype, "float32"):
            inputs = [values(dtype, shape), values(other, shape[-1:])]
            assert kernel_of(f"torch.{type_}", inputs) == "map"
        for number in (0, 1, 300, -1, 0.5, True):
            kernel_of(f"torch.{type_}", [values(dtype, shape)], other=number)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int32", "int64"])
@pytest.mark.parametrize("type_", ["bitwise_and", "bitwise_or", "bitwise_xor", "maximum", "minimum"])
def test_functions_of_integers(type_: str, dtype: str) -> None:
    assert kernel_of(f"torch.{type_}", [values(dtype, (3, 17)), values(dtype, (17,))]) == "map"
    assert kernel_of("torch.bitwise_not", [values(dtype, (3, 17))]) == "map"


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("type_", ["bitwise_left_shift", "bitwise_right_shift"])
def test_shifts_by_more_than_there_are_bits(type_: str, dtype: str) -> None:
    counts = RANDOM.choice(np.array([-1, 0, 1, 7, 8, 31, 32, 63, 64, 100], dtype), (3, 17))
    assert kernel_of(f"torch.{type_}", [values(dtype, (3, 17)), counts]) == "map"


@pytest.mark.parametrize("dtype", DTYPES)
def test_choices_by_a_mask(dtype: str) -> None:
    for shape in SHAPES:
        mask, x = values("bool", shape), values(dtype, shape)
        assert kernel_of("torch.where", [mask, x, values(dtype, shape[-1:])]) == "map"
        assert kernel_of("Tensor.masked_fill", [x, mask], value=1) == "map"
    kernel_of("torch.where", [mask, x, values("float32", shape)])
    kernel_of("torch.where", [mask, x, values("int64", shape)])


def test_a_float_mask_is_filled_with_minus_infinity() -> None:
    x, mask = values("float32", (2, 3, 17)), values("bool", (3, 17))
    assert kernel_of("Tensor.masked_fill", [x, mask], value=float("-inf")) == "map"


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_conversions(source: str, target: str) -> None:
    x = np.nan_to_num(values(source, (3, 17)))
    kernel = kernel_of(
        "Tensor.to", [x], dtype=f"torch.{ {'float32': 'float', 'float64': 'double'}.get(target, target) }"
    )
    cuts = source.startswith("float") and not target.startswith(("float", "bool"))
    assert cuts or kernel != "reference" or source == target


@pytest.mark.parametrize(
    ("expr", "dtype"),
    [
        ("add(mul(@0,@1),3)", "int32"),
        ("sub(@0,mul(@1,@1))", "int64"),
        ("div(add(@0,0.1),sqrt(abs(@1)))", "float64"),
        ("neg(max(@0,@1))", "float64"),
    ],
)
def test_expressions_of_one_dtype(expr: str, dtype: str) -> None:
    assert kernel_of("pnnx.Expression", [values(dtype, (3, 17)), values(dtype, (17,))], expr=expr) == "map"
