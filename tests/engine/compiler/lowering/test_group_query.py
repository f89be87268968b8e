"""Attention of decoders with keys of earlier steps: the reference's answers, whatever each row has of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session, ShapeError
from engine.pnnx import Operator
from engine.tensor import Array
from tests.engine.compiler.lowering.agreeing import check, everywhere, net_of
from tests.engine.graph.build import op

RANDOM = np.random.default_rng(43)
CLOSE = 2e-6
ANGLES = np.arange(40, dtype=np.float32)[:, None] * RANDOM.random(16).astype(np.float32)


def values(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def decoder(
    counts: list[int], total: int, *, new: int = 1, past: int = 0, size: int = 16, turned: int = 0,
    is_packed: bool = False, bias: bool = False, **given: Any,
) -> tuple[list[Array], Operator]:  # fmt: skip
    """Inputs, and the operator: 4 heads in 2 groups."""
    batch = len(counts)
    inputs = {"query": values(batch, new, (8 if is_packed else 4) * size)}
    if not is_packed:
        inputs |= {name: values(batch, new, 2 * size) for name in ("key", "value")}
    if past:
        inputs |= {name: values(batch, 2, past, size) for name in ("past_key", "past_value")}
    inputs["seqlens_k"] = np.array(counts, np.int32) - 1
    if bias:
        inputs["attention_bias"] = values(1, 4, new, total)
    if turned:
        given |= {"cos_cache": np.cos(ANGLES[:, : turned // 2]), "sin_cache": np.sin(ANGLES[:, : turned // 2])}
        given |= {"do_rotary": 1}
    names = " ".join(map(str, range(len(inputs))))
    made = op(
        "GroupQueryAttention", "it", names, "y keys values", labels=tuple(inputs), num_heads=4, kv_num_heads=2,
        total_sequence_length=total, **given,
    )  # fmt: skip
    return [*inputs.values()], made


@pytest.mark.parametrize(
    ("counts", "total", "given"),
    [
        ([5, 5], 5, {"new": 5}),
        ([2, 5, 1], 5, {"new": 5}),
        ([9, 5], 9, {"past": 8}),
        ([1], 1, {"size": 8}),
        ([9, 5], 9, {"past": 16}),
        ([11, 4], 11, {"new": 3, "past": 8}),
        ([9, 3], 9, {"past": 8, "turned": 8}),
        ([5, 2], 5, {"new": 5, "turned": 16, "rotary_interleaved": 1}),
        ([6], 6, {"new": 6, "local_window_size": 3}),
        ([9, 6], 9, {"new": 2, "past": 7, "softcap": 2.0}),
        ([7, 5], 7, {"new": 3, "past": 4, "bias": True, "scale": 0.3}),
        ([5, 4], 5, {"new": 5, "is_packed": True}),
    ],
    ids=str,
)
def test_rows_of_any_number_of_keys(counts: list[int], total: int, given: dict[str, Any]) -> None:
    inputs, made = decoder(counts, total, **given)
    check(inputs, made, tolerance=CLOSE)


def test_the_first_step_of_a_decoder_whose_cache_is_empty() -> None:
    inputs, made = decoder([4, 3], 4, new=4, past=1)
    check([*inputs[:3], *(each[:, :, :0] for each in inputs[3:5]), inputs[5]], made, tolerance=CLOSE)


def test_any_processor_with_what_is_no_number_behind_the_keys() -> None:
    inputs, made = decoder([9, 4], 9, past=16, turned=16)
    for cache in inputs[3:5]:
        cache[:, :, 8:] = np.nan
    everywhere(inputs, made, tolerance=CLOSE)


of_16_bits = pytest.mark.parametrize(("dtype", "unit"), [("float16", 2**-11), ("bfloat16", 2**-8)])


@of_16_bits
@pytest.mark.parametrize("given", [{}, {"past": 8, "new": 5, "turned": 8}, {"new": 2, "softcap": 2.0}], ids=str)
def test_caches_of_16_bits_on_any_processor(dtype: str, unit: float, given: dict[str, Any]) -> None:
    new = given.get("new", 1)
    inputs, made = decoder([8 + new, 3 + new], 8 + new, **{"past": 16, "turned": 16, **given})
    everywhere([_narrow(each, dtype) for each in inputs], made, tolerance=unit)


@of_16_bits
def test_the_reference_reads_caches_of_16_bits_where_no_kernel_does(dtype: str, unit: float) -> None:
    inputs, made = decoder([9, 4], 9, past=16, smooth_softmax=1)
    check([_narrow(each, dtype) for each in inputs], made, tolerance=unit, is_whole=False)


def _narrow(values: Array, dtype: str) -> Array:
    return values.astype(dtype) if values.dtype == np.float32 else values


@pytest.mark.parametrize("counts", [[9, 10], [9, 0]], ids=str)
def test_numbers_of_keys_that_do_not_fit_are_refused_as_by_the_reference(counts: list[int]) -> None:
    inputs, made = decoder([9, 9], 9, past=16)
    session = Session(net_of([made], inputs), backend="compiled", cache=None)
    session.run(inputs)
    inputs[5] = np.array(counts, np.int32) - 1
    with pytest.raises(ShapeError, match="do not fit"):
        session.run(inputs)


def test_masks_of_what_comes_later() -> None:
    past, mask = values(1, 2, 6, 4), op("engine.CausalMask", "it", "0 1 2", "3")
    check([values(1, 2, 3, 4), values(1, 2, 9, 4), past], mask)
    check([values(1, 2, 19, 4), values(1, 2, 19, 4)], op("engine.CausalMask", "it", "0 1", "2"))
