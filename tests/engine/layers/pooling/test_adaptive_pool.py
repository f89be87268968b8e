"""Adaptive pools: what they refuse, and that their work does not grow with the product of windows and outputs."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import RunCancelledError, TensorSpec
from engine.cancellation import cancelling
from engine.tensor import Array
from tests.engine.layers.refusals import build, refusal, tensor
from tests.nightly import IS_NIGHTLY

IMAGE = tensor(1, 2, 5, 5)


@pytest.mark.parametrize(
    ("output_size", "message"),
    [
        ((2, 2, 2), "output_size does not fit: found [2, 2, 2], expected 2 sizes, or 0 to keep the input's"),
        ((2, -1), "output_size does not fit: found [2, -1], expected 2 sizes, or 0 to keep the input's"),
        ("all", "parameter 'output_size': wrong kind of value: found 'all', expected list of int or None"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(output_size: object, message: str) -> None:
    assert refusal("nn.AdaptiveAvgPool2d", IMAGE, output_size=output_size) == message


@pytest.mark.parametrize(
    ("input", "message"),
    [
        (tensor(5, 5), "input has the wrong number of dimensions: found [5, 5], expected 3 or, with a batch, 4"),
        (tensor(1, 2, 0, 5), "a spatial axis is empty: found [1, 2, 0, 5]"),
        (tensor(1, 2, 5, 5, dtype="int64"), "operand 'input' has the wrong dtype: found int64, expected floating"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(input: TensorSpec, message: str) -> None:
    assert refusal("F.adaptive_max_pool2d", input, output_size=(2, 2)) == message


def test_a_size_that_is_kept_stays_open() -> None:
    layer = build("F.adaptive_avg_pool2d", 1, output_size=(0, 3))
    assert layer.infer([TensorSpec((1, 2, None, None), IMAGE.dtype)]) == TensorSpec((1, 2, None, 3), IMAGE.dtype)


def windows(size: int, count: int) -> list[slice]:
    """As the definition has them."""
    return [slice(i * size // count, math.ceil((i + 1) * size / count)) for i in range(count)]


def place(window: Array) -> int:
    """The first of the largest, the last NaN."""
    is_nan = np.flatnonzero(np.isnan(window))
    return int(is_nan[-1] if len(is_nan) else window.argmax())


@given(
    size=st.integers(1, 90),
    count=st.integers(1, 100),
    values=st.lists(
        st.sampled_from([0.0, 1.0, -2.0, 3.0, math.nan, math.inf, -math.inf, -0.0]), min_size=90, max_size=90
    ),
)
@settings(max_examples=2000 if IS_NIGHTLY else 60, deadline=None, derandomize=True)
def test_every_window_gives_what_its_elements_give(size: int, count: int, values: list[float]) -> None:
    """Few long windows and many short ones are walked through in different ways."""
    x = np.array(values[:size], np.float32).reshape(1, 1, size)
    wanted = [x[0, 0, each] for each in windows(size, count)]
    mean = build("F.adaptive_avg_pool1d", 1, output_size=(count,)).forward([x])
    top, index = build("F.adaptive_max_pool1d", 1, output_size=(count,), return_indices=True).forward([x])
    alone = build("F.adaptive_max_pool1d", 1, output_size=(count,), return_indices=False).forward([x])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(mean[0, 0], [each.mean() for each in wanted], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(top[0, 0], [each.max() for each in wanted])
    np.testing.assert_array_equal(alone, top)
    starts = [each.start for each in windows(size, count)]
    assert index[0, 0].tolist() == [start + place(each) for start, each in zip(starts, wanted, strict=True)]


@pytest.mark.parametrize("type", ["F.adaptive_avg_pool1d", "F.adaptive_max_pool1d", "indices"])
@pytest.mark.parametrize("count", [2, 3, 1_000, 99_999, 100_002, 300_000])
def test_turns_of_python_grow_no_faster_than_the_root_of_the_size(type: str, count: int) -> None:
    turns = 0

    def counting() -> bool:
        nonlocal turns
        turns += 1
        return False

    size = 100_001
    options = {} if type == "F.adaptive_avg_pool1d" else {"return_indices": type == "indices"}
    layer = build("F.adaptive_max_pool1d" if type == "indices" else type, 1, output_size=(count,), **options)
    with cancelling(counting):
        layer.forward([np.zeros((1, 1, size), np.float32)])
    assert turns <= math.isqrt(2 * size) + 2


@pytest.mark.parametrize("type", ["F.adaptive_avg_pool1d", "F.adaptive_max_pool1d"])
def test_a_pool_that_takes_long_can_be_stopped(type: str) -> None:
    options = {"return_indices": True} if "max" in type else {}
    layer = build(type, 1, output_size=(300,), **options)
    with cancelling(lambda: True), pytest.raises(RunCancelledError):
        layer.forward([np.zeros((1, 1, 100_001), np.float32)])


@pytest.mark.parametrize("kind", ["Avg", "Max"])
def test_what_grows_on_one_axis_and_shrinks_on_another_is_never_larger_than_both_ends(kind: str) -> None:
    indices = {"return_indices": False} if kind == "Max" else {}
    layer = build(f"nn.Adaptive{kind}Pool2d", 1, output_size=(100_000, 1), **indices)
    x = np.random.default_rng(0).random((1, 1, 9, 64), np.float32)
    tracemalloc.start()
    y = layer.forward([x])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert y.shape == (1, 1, 100_000, 1) and peak < 20 * y.nbytes
    assert peak < layer.scratch_bytes(TensorSpec(y.shape, y.dtype), [TensorSpec(x.shape, x.dtype)]) + 16 * y.nbytes
