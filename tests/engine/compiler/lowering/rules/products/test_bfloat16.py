"""Products of bfloat16: chosen by the session's precision where the processor has them, with their rounding error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import ParameterError, Session
from engine.compiler.codegen.host import detect
from engine.options import Options, Precision
from engine.tensor import BFLOAT16, Array
from tests.engine.compiler.lowering.agreeing import net_of
from tests.engine.graph.build import conv, op

PRECISIONS: tuple[Precision, ...] = ("float32", "bf16", "float32")
RANDOM = np.random.default_rng(5)


def answers(x: Array, weight: Array, precision: Precision, cache: Path | None = None) -> Array:
    columns, terms = weight.shape
    linear = op("nn.Linear", "linear", "0", "1", in_features=terms, out_features=columns, bias=False, weight=weight)
    session = Session(net_of([linear], [x]), "compiled", 1, precision=precision, cache=cache)
    return session.run([x])[0]


@pytest.mark.parametrize("precision", ["bf16", "auto"])
@pytest.mark.parametrize("shape", [(1, 64, 32), (29, 130, 77), (3, 7, 256, 1024)], ids=str)
def test_factors_are_rounded_and_sums_are_float32(shape: tuple[int, ...], precision: Precision) -> None:
    x = RANDOM.standard_normal(shape[:-1]).astype(np.float32)
    weight = RANDOM.standard_normal((shape[-1], shape[-2])).astype(np.float32)
    found = answers(x, weight, precision)
    if not detect().has_bfloat16:
        np.testing.assert_array_equal(found, answers(x, weight, "float32"))
        return
    wide = [each.astype(BFLOAT16).astype(np.float64) for each in (x, weight)]
    np.testing.assert_allclose(found, wide[0] @ wide[1].T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [(29, 131, 77), (29, 64, 31)], ids=["odd terms", "few columns"])
def test_other_products_stay_float32(shape: tuple[int, int, int]) -> None:
    x = RANDOM.standard_normal(shape[:2]).astype(np.float32)
    weight = RANDOM.standard_normal((shape[2], shape[1])).astype(np.float32)
    np.testing.assert_array_equal(answers(x, weight, "bf16"), answers(x, weight, "float32"))


def test_programs_of_each_precision_are_kept_apart(tmp_path: Path) -> None:
    x, weight = np.ones((1, 64), np.float32), np.full((32, 64), 1 + 2.0**-9, np.float32)
    found = [answers(x, weight, precision, tmp_path)[0, 0] for precision in PRECISIONS]
    rounded = 64.0 if detect().has_bfloat16 else 64.125
    assert found == [64.125, rounded, 64.125]


def test_unknown_precisions_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"unknown precision.*float16.*float32, bf16 or auto"):
        Options(precision="float16")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kernel", "given"),
    [
        ((1, 1), {}),
        ((1, 1), {"stride": (2, 2)}),
        ((3, 3), {"stride": (2, 1), "padding": (1, 2)}),
        ((5, 3), {"padding": (2, 0), "dilation": (1, 2)}),
        ((4,), {"padding": (3,)}),
        ((5, 2), {"stride": (5, 2), "channels": 3, "sizes": (15, 8)}),
    ],
    ids=str,
)
def test_convolutions_round_their_factors(kernel: tuple[int, ...], given: dict[str, Any]) -> None:
    given = dict(given)
    channels, sizes = given.pop("channels", 48), given.pop("sizes", (11, 9))
    x = RANDOM.standard_normal((2, channels, *sizes[: len(kernel)])).astype(np.float32)
    layer = conv("conv", "0", "1", (channels, 70), kernel, **given)
    options: dict[str, Any] = {"threads": 2, "winograd": "off", "cache": None}
    found = Session(net_of([layer], [x]), "compiled", precision="bf16", **options).run([x])[0]
    weight = layer.attributes["weight"].data
    if detect().has_bfloat16:
        x, weight = (each.astype(BFLOAT16).astype(np.float32) for each in (x, weight))
    layer = conv("conv", "0", "1", (channels, 70), kernel, **given, weight=weight)
    expected = Session(net_of([layer], [x]), "reference").run([x])[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_subnormal_factors_count_as_zero() -> None:
    x = np.full((1, 64), 1e-39, np.float32)
    weight = np.full((32, 64), 2.0**60, np.float32)
    assert np.all(answers(x, weight, "bf16") == (0 if detect().has_bfloat16 else answers(x, weight, "float32")))


def attend(query: Array, key: Array, value: Array, precision: Precision) -> Array:
    operator = op("F.scaled_dot_product_attention", "it", "0 1 2", "3", attn_mask=None, is_causal=False)
    session = Session(net_of([operator], [query, key, value]), "compiled", 2, precision=precision, cache=None)
    return session.run([query, key, value])[0]


@pytest.mark.parametrize("sizes", [(40, 40, 16, 16), (33, 65, 34, 7)], ids=str)
def test_attention_rounds_its_factors(sizes: tuple[int, int, int, int]) -> None:
    queries, keys, width, values = sizes
    shapes = (2, 3, queries, width), (2, 3, keys, width), (2, 3, keys, values)
    query, key, value = (RANDOM.standard_normal(shape).astype(np.float32) for shape in shapes)
    found = attend(query, key, value, "bf16")
    if not detect().has_bfloat16:
        np.testing.assert_array_equal(found, attend(query, key, value, "float32"))
        return
    q, k, v = (each.astype(BFLOAT16).astype(np.float64) for each in (query, key, value))
    scores = np.exp(q @ k.swapaxes(2, 3) / np.sqrt(width))
    expected = (scores / scores.sum(-1, keepdims=True)).astype(np.float32).astype(BFLOAT16).astype(np.float64) @ v
    np.testing.assert_allclose(found, expected, rtol=0, atol=4e-4)
    assert np.abs(found - attend(query, key, value, "float32")).max() > 1e-5
