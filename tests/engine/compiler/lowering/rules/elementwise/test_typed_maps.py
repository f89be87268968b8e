"""Operators of other dtypes than float32: the reference's answers, dtypes included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session, TensorSpec
from tests.engine.graph.build import built, op
from tests.nightly import IS_NIGHTLY

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
    """Return the kernel of an operator whose answer is the reference's to the bit."""
    return kernels_of(inputs, [(type_, given)])[0]


def kernels_of(inputs: list[np.ndarray], operators: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Return the kernels of a graph's operators, each of a type and parameters; the answers are the reference's."""
    ports = [op("pnnx.Input", f"in_{k}", "", str(k)) for k, _ in enumerate(inputs)]
    specs = {f"_{k}": TensorSpec(each.shape, each.dtype) for k, each in enumerate(inputs)}
    names = " ".join(str(k) for k, _ in enumerate(inputs))
    ends = []
    for k, (type_, given) in enumerate(operators):
        ends += [op(type_, f"it{k}", names, f"result{k}", **given), op("pnnx.Output", f"out{k}", f"result{k}")]
    net = built(*ports, *ends, **specs)
    session = Session(net, cache=None)
    for found, wanted in zip(session.run(inputs), Session(net, backend="reference").run(inputs), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
    rows = {row["name"]: row["kernel"] for row in session.describe()["operators"] if "kernel" in row}
    return ["reference" if session.compile_failure else rows[f"it{k}"] for k, _ in enumerate(operators)]


COMPARISONS = [f"torch.{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge")]
COMPARISONS += [f"torch.logical_{name}" for name in ("and", "or", "xor")]


@pytest.mark.parametrize("dtype", DTYPES)
def test_comparisons_and_logic(dtype: str) -> None:
    for shape in SHAPES:
        for other in ("bool", dtype, "float32") if IS_NIGHTLY or shape == SHAPES[-1] else (dtype,):
            inputs = [values(dtype, shape), values(other, shape[-1:])]
            assert set(kernels_of(inputs, [(type_, {}) for type_ in COMPARISONS])) == {"map"}
        for numbers in ((0, 1, 300, -1, 0.5), (True,)):  # separate, because True == 1 would be merged with 1
            with_each = [(type_, {"other": number}) for type_ in COMPARISONS for number in numbers]
            kernels_of([values(dtype, shape)], with_each)


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


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float64"])
def test_reductions_and_scans_of_any_dtype(dtype: str) -> None:
    x = values(dtype, (3, 4, 17))
    if dtype == "float64":
        x = np.nan_to_num(np.round(x * 8))  # sums are exact in any order
    for dims in ((-1,), (0,), (0, 2)):
        is_between = dtype == "float64" and dims == (0,)  # the same kernel as of float32
        for type_, keepdim in (("torch.sum", False), ("torch.amax", True), ("torch.amin", False)):
            kernel = "global_average" if is_between else "rows"
            assert kernel_of(type_, [x], dim=dims, keepdim=keepdim) == kernel
    assert kernel_of("torch.any", [x], dim=1, keepdim=False) == "rows"
    assert kernel_of("torch.all", [x], dim=-1, keepdim=False) == "rows"
    assert kernel_of("torch.prod", [x[:, :, :3]], dim=-1, keepdim=False) == "rows"
    for dim in (0, -1):
        assert kernel_of("torch.cumsum", [x], dim=dim) == "scan"


@pytest.mark.parametrize("dtype", ["bool", "int16", "int64"])
def test_elements_of_any_dtype_are_moved(dtype: str) -> None:
    x = np.random.default_rng(3).integers(0, 2, (3, 4, 5)).astype(dtype)
    y = np.random.default_rng(4).integers(0, 2, (3, 4, 5)).astype(dtype)
    assert kernel_of("torch.cat", [x, y], dim=1) in ("map", "transpose")
    assert kernel_of("torch.stack", [x, y], dim=-1) in ("map", "transpose")
    assert kernel_of("torch.flip", [x], dims=(0, 2)) == "map"
    assert kernel_of("Tensor.repeat", [x], sizes=(2, 1, 3)) == "map"
    assert kernel_of("torch.roll", [x], shifts=(1,), dims=(2,)) == "map"


@pytest.mark.parametrize("dtype", ["int8", "int64", "float64"])
def test_layers_of_any_dtype(dtype: str) -> None:
    x, y = values(dtype, (3, 17)), values(dtype, (17,))
    for type_ in ("torch.add", "torch.sub"):
        assert kernel_of(type_, [x, y], alpha=3) == "map"
    for type_ in ("torch.sign", "torch.floor", "torch.round", "F.relu"):
        assert kernel_of(type_, [x]) == "map"
    for low, high in ((1, 30), (1, None), (None, 30)):
        assert kernel_of("torch.clamp", [x], min=low, max=high) == "map"
    if dtype != "float64":  # PyTorch makes float32 of them
        assert kernel_of("torch.sqrt", [np.abs(x // 2)]) == "map"
        assert kernel_of("torch.div", [x, np.where(y == 0, np.ones_like(y), y)]) == "map"
        assert kernel_of("pnnx.Expression", [x], expr="div(@0,3)") == "map"
        kernel_of("pnnx.Expression", [x, values("float32", (3, 17))], expr="add(mul(@0,@0),@1)")


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("target", ["uint8", "int8", "int16", "int32", "int64"])
def test_fractions_are_cut(source: str, target: str) -> None:
    ends = [0.5, -0.5, 1.999, -1.999, 127.9, 128, 255.5, 256, -129, 3e4, 7e4, 2.0**31, -(2.0**31), 2.0**53]
    x = np.array([*ends, 2.0**63, -(2.0**63), 1e30, -1e30, np.inf, -np.inf, np.nan, -0.0], source)
    assert kernel_of("Tensor.to", [x], dtype=f"torch.{target}", copy=False) == "map"
