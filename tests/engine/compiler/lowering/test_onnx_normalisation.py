"""Norms, scans and transforms as ONNX has them: the reference's answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.tensor import Array
from tests.engine.compiler.lowering.agreeing import check, everywhere
from tests.engine.graph.build import op

RANDOM = np.random.default_rng(37)
CLOSE = 2e-6


def values(*shape: int, dtype: str = "float32") -> Array:
    result: Array = (RANDOM.standard_normal(shape) * 4).astype(dtype)
    return result


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 6, 5, 7), (1, 2, 1), (3, 4, 17)], ids=str)
def test_norms(shape: tuple[int, ...], dtype: str) -> None:
    x, vectors = values(*shape, dtype=dtype), [values(shape[1], dtype=dtype) for _ in range(4)]
    vectors[3] = np.abs(vectors[3])
    names = ("scale", "bias", "mean", "var")
    affine = dict(zip(names[:2], vectors, strict=False))
    x[0, 0] = 0
    check(
        [x],
        op("BatchNormalization", "batch", "0", "a", epsilon=1e-3, **dict(zip(names, vectors, strict=True))),
        op("InstanceNormalization", "instance", "0", "b", epsilon=1e-3, **affine),
        op("GroupNormalization", "group", "0", "c", num_groups=2, epsilon=1e-3, **affine),
        op("LpNormalization", "length", "0", "d"),
        op("LpNormalization", "sum", "0", "e", p=1, axis=1),
        op("MeanVarianceNormalization", "mean", "0", "f", axes=(0, -1)),
        tolerance=CLOSE if dtype == "float32" else 1e-13,
    )


def test_norms_of_what_is_not_finite_on_any_processor() -> None:
    x = values(3, 19)
    x[0, 3], x[1, 4], x[2] = np.nan, np.inf, 0
    everywhere([x], op("LpNormalization", "length", "0", "d"), op("Hardmax", "most", "0", "m"), tolerance=CLOSE)


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
def test_the_first_of_the_largest_elements(dtype: str) -> None:
    x = RANDOM.integers(-2, 3, (3, 4, 9)).astype(dtype)
    check([x], *(op("Hardmax", f"most_{axis}", "0", f"m{axis}", axis=axis) for axis in (0, 1, 2)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("is_reverse", [0, 1])
def test_running_sums_that_leave_an_element_itself_out(dtype: str, is_reverse: int) -> None:
    operators = [
        op(kind, f"{kind}_{axis}", "0", f"{kind}{axis}", axis=axis, exclusive=1, reverse=is_reverse)
        for kind in ("CumSum", "CumProd") for axis in (0, -1)
    ]  # fmt: skip
    for shape in ((3, 4, 17), (2, 1), (1,)):
        check([values(*shape, dtype=dtype)], *operators, tolerance=CLOSE)


def test_such_sums_on_any_processor() -> None:
    everywhere([values(2, 5, 19)], op("CumSum", "it", "0", "1", axis=1, exclusive=1), tolerance=CLOSE)


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        ((2, 16, 1), {"onesided": 1}),
        ((2, 15, 1), {}),
        ((2, 16, 2), {"inverse": 1}),
        ((2, 9, 2), {"inverse": 1, "onesided": 1}),
        ((3, 8, 5, 2), {"axis": 1, "dft_length": 6}),
        ((1, 1, 1), {}),
    ],
    ids=str,
)
def test_transforms_of_numbers_in_pairs(shape: tuple[int, ...], given: dict[str, Any]) -> None:
    first = op("nn.ReLU", "first", "0", "x")
    check([values(*shape)], first, op("DFT", "it", "x", "1", **given), tolerance=CLOSE, is_whole=False)


@pytest.mark.parametrize("parts", [1, 2])
def test_transforms_of_frames(parts: int) -> None:
    window = np.hanning(16).astype(np.float32)
    given: dict[str, Any] = {"frame_step": 5, "onesided": int(parts == 1)}
    for size, chosen in ((67, {"window": window}), (16, {"frame_length": 16})):
        first, it = op("nn.ReLU", "first", "0", "x"), op("STFT", "it", "x", "1", **chosen, **given)
        check([values(2, size, parts)], first, it, tolerance=CLOSE, is_whole=False)
