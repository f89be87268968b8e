"""Special functions against PyTorch's, and their edges."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from engine import special
from engine.tensor import BFLOAT16, Array

with np.load(Path(__file__).parents[1] / "data" / "expression" / "special.npz") as archive:
    RECORDED: dict[str, Array] = {name: archive[name] for name in archive.files}

FUNCTIONS = ("erf", "erfc", "erfinv", "lgamma", "digamma")
every_function = pytest.mark.parametrize("name", FUNCTIONS)


@every_function
def test_float64_is_pytorchs(name: str) -> None:
    value = getattr(special, name)(RECORDED[f"{name}.x"])
    np.testing.assert_allclose(value, RECORDED[f"{name}.f64"], rtol=2e-14, atol=1e-14)


@every_function
def test_float32_is_pytorchs(name: str) -> None:
    value = getattr(special, name)(RECORDED[f"{name}.x"].astype(np.float32))
    assert value.dtype == np.float32
    # PyTorch's digamma of float32 is itself only good to 1e-5, see the next test.
    rtol, atol = (2e-5, 2e-6) if name == "digamma" else (1e-6, 1e-37)
    np.testing.assert_allclose(value, RECORDED[f"{name}.f32"], rtol=rtol, atol=atol)


@every_function
def test_float32_is_float64_rounded(name: str) -> None:
    value = getattr(special, name)(RECORDED[f"{name}.x"].astype(np.float32))
    with np.errstate(over="ignore"):
        expected = RECORDED[f"{name}.f64"].astype(np.float32)
    np.testing.assert_allclose(value, expected, rtol=4e-7, atol=1e-38)


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16])
@every_function
def test_halves_are_computed_wider_and_rounded(name: str, dtype: np.dtype[np.generic]) -> None:
    x: Array = np.linspace(0.1, 0.9, 50).astype(dtype)
    value = getattr(special, name)(x)
    assert value.dtype == dtype
    expected = getattr(special, name)(x.astype(np.float64))
    np.testing.assert_allclose(value.astype(np.float64), expected, rtol=2**-8 if dtype == BFLOAT16 else 2**-11)


@every_function
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_integers_give_float32(name: str, dtype: type) -> None:
    assert getattr(special, name)(np.ones(2, dtype)).dtype == np.float32


@every_function
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (70_000,)])
def test_shapes_are_kept_whatever_the_layout(name: str, shape: tuple[int, ...]) -> None:
    x: Array = np.array(np.linspace(0.1, 0.9, int(np.prod(shape))).reshape(shape), order="F")
    value = getattr(special, name)(x)
    assert value.shape == shape
    assert np.array_equal(value.ravel(), getattr(special, name)(np.array(x.ravel())))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf_is_odd_and_bounded(dtype: type) -> None:
    x: Array = np.linspace(-6, 6, 4001).astype(dtype)
    value = special.erf(x)
    assert np.array_equal(value, -special.erf(-x))
    assert np.abs(value).max() == 1


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 4e-7), (np.float64, 1e-15)])
def test_gelu_is_the_argument_times_the_normal_distribution(dtype: type, tolerance: float) -> None:
    x: Array = np.concatenate([np.linspace(-8, 8, 70_001), np.logspace(-30, 20, 101)]).astype(dtype)
    expected = np.array([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x.tolist()])
    assert np.all(np.abs(special.gelu(x) - expected) <= tolerance * np.abs(x))


def test_gelu_of_what_is_not_finite_follows_the_formula() -> None:
    x: Array = np.array([np.inf, -np.inf, np.nan, -0.0], np.float32)
    np.testing.assert_array_equal(special.gelu(x), np.array([np.inf, np.nan, np.nan, -0.0], np.float32))


def test_erfinv_undoes_erf() -> None:
    x = np.linspace(-3, 3, 601)
    np.testing.assert_allclose(special.erfinv(special.erf(x)), x, rtol=1e-11)


@pytest.mark.parametrize("x", [1e-18, 1 - 1e-15, 1 + 2e-15, 2 - 2e-15, 2 + 4e-15])
def test_lgamma_is_exact_beside_its_zeros(x: float) -> None:
    slope = {0: None, 1: -np.euler_gamma, 2: 1 - np.euler_gamma}[round(x)]
    expected = -np.log(x) if slope is None else slope * (x - round(x))
    np.testing.assert_allclose(special.lgamma(np.array(x)), expected, rtol=1e-13)


@every_function
def test_functions_do_not_warn(name: str) -> None:
    with np.errstate(all="raise"):
        getattr(special, name)(np.array([np.nan, np.inf, -np.inf, 0, -0.0, -3, 1e308, -1e308, 5e-324]))
