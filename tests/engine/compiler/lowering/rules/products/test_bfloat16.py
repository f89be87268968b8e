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
        ((7, 7), {"stride": (2, 2), "padding": (3, 3), "channels": 3, "sizes": (30, 40)}),
        ((3, 3), {"channels": 5, "padding": (0, 1), "sizes": (7, 6)}),
        ((9,), {"channels": 17}),
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


def attend(
    operands: list[Array], precision: Precision, *, is_causal: bool = False, layout: tuple[int, ...] | None = None
) -> Array:
    """Return attention of (query, key, value, mask), the first three stored in another order of dimensions."""
    names = " ".join(map(str, range(len(operands))))
    mask = {"attn_mask": None} if len(operands) == 3 else {}
    attention = op("F.scaled_dot_product_attention", "it", "q k v" + names[5:], "y", is_causal=is_causal, **mask)
    order = layout or (0, 1, 2, 3)
    moves = [op("torch.permute", f"p{k}", str(k), "qkv"[k], dims=list(order)) for k in range(3)]
    stored = [np.ascontiguousarray(each.transpose(np.argsort(order))) for each in operands[:3]] + operands[3:]
    return Session(net_of([*moves, attention], stored), "compiled", 2, precision=precision, cache=None).run(stored)[-1]


def rounded_attention(operands: list[Array], seen: Array | float) -> Array:
    """Return the formula with rounded factors; ``seen`` is added to the scores."""
    q, k, v = (each.astype(BFLOAT16).astype(np.float64) for each in operands[:3])
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]) + seen
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights.astype(np.float32).astype(BFLOAT16).astype(np.float64) @ v / weights.sum(-1, keepdims=True)


HEADS, JOINED, COLUMNS = (0, 1, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2)


@pytest.mark.parametrize(
    ("sizes", "kind", "layout"),
    [
        ((33, 65, 34, 7), "plain", HEADS),
        ((197, 197, 64, 64), "plain", JOINED),
        ((49, 49, 32, 1), "added", HEADS),
        ((70, 1301, 8, 40), "plain", COLUMNS),
        ((70, 901, 8, 5), "kept", JOINED),
        ((45, 45, 2, 33), "causal", COLUMNS),
    ],
    ids=str,
)
def test_attention_rounds_its_factors(sizes: tuple[int, int, int, int], kind: str, layout: tuple[int, ...]) -> None:
    queries, keys, width, values = sizes
    shapes = (2, 3, queries, width), (2, 3, keys, width), (2, 3, keys, values)
    operands = [RANDOM.standard_normal(shape).astype(np.float32) for shape in shapes]
    seen: Array | float = 0.0
    if kind == "added":
        operands.append(RANDOM.standard_normal((3, queries, keys)).astype(np.float32))
        seen = operands[3].astype(np.float64)
    if kind == "kept":
        operands.append(np.arange(keys) < keys - 100 * np.arange(queries)[:, None] % 700)
        seen = np.where(operands[3], 0, -np.inf)
    if kind == "causal":
        seen = np.where(np.tri(queries, keys, dtype=bool), 0, -np.inf)
    found = attend(operands, "bf16", is_causal=kind == "causal", layout=layout)
    if not detect().has_bfloat16:
        np.testing.assert_array_equal(found, attend(operands, "float32", is_causal=kind == "causal", layout=layout))
        return
    np.testing.assert_allclose(found, rounded_attention(operands, seen), rtol=0, atol=1e-3)


@pytest.mark.parametrize("odd", [{"width": 33}, {"queries": 31}, {"keys": 31}], ids=str)
def test_other_attention_stays_float32(odd: dict[str, int]) -> None:
    sizes = {"queries": 40, "keys": 40, "width": 32, **odd}
    lengths = sizes["queries"], sizes["keys"], sizes["keys"]
    operands = [RANDOM.standard_normal((1, 2, each, sizes["width"])).astype(np.float32) for each in lengths]
    np.testing.assert_array_equal(attend(operands, "bf16"), attend(operands, "float32"))


def test_keys_and_values_that_are_not_finite_spoil_only_what_sees_them() -> None:
    operands = [RANDOM.standard_normal((1, 1, 64, 16)).astype(np.float32) for _ in range(3)]
    operands[1][0, 0, 40], operands[2][0, 0, 51] = np.nan, np.inf
    seen = np.tri(64, dtype=bool)
    seen[:, 51] = False
    for given in (operands, [*operands, seen]):
        is_causal = len(given) == 3
        both = [np.isfinite(attend(given, each, is_causal=is_causal)) for each in PRECISIONS[:2]]
        np.testing.assert_array_equal(*both)
