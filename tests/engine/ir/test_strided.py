"""Meta tensors are seen as numpy sees arrays, and never ask a size for its number."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from engine.ir.strided import Strided, empty
from tests.engine.ir.sizes import numbers, plain, sizes

SIZES = st.sampled_from([0, 1, 1, 2, 2, 3, 4, 6])
SHAPES = st.lists(SIZES, max_size=4).map(tuple)
DTYPES = st.sampled_from([np.dtype(name) for name in ("int8", "float32", "float64", "complex64", "complex128")])
MOST_STEPS = 6


@dataclass(frozen=True)
class Step:
    """An operation on an array, and its arguments.

    Args:
        run: called with an array or a meta tensor, and the arguments.
        shape: an argument that holds sizes.
    """

    run: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    shape: tuple[int, ...] | None = None

    def __call__(self, x: Any, wrap: Callable[[Any], Any] = tuple) -> Any:
        return self.run(x, *self.arguments, *(() if self.shape is None else (wrap(self.shape),)))


def reshapes(x: np.ndarray) -> st.SearchStrategy[Step]:
    """The shape cut into factors or merged, with ones between, and perhaps a -1."""
    factors = [factor for size in x.shape for factor in ([1, size] if size % 2 or size < 4 else [2, size // 2])]
    orders = st.permutations(factors).filter(bool) if factors else st.just([1])
    merged = st.integers(0, max(len(factors) - 1, 0)).map(lambda k: (*factors[:k], math.prod(factors[k:])))
    shapes = st.one_of(orders.map(tuple), merged, merged.map(lambda s: (*s[:-1], -1) if math.prod(s[:-1]) else s))
    run = st.sampled_from([lambda a, s: a.reshape(s), lambda a, s: a.reshape(*s), np.reshape])
    return st.builds(lambda run, shape: Step(run, shape=shape), run, shapes)


def orders(x: np.ndarray) -> st.SearchStrategy[Step]:
    if not x.ndim:
        return st.just(Step(lambda a: a.T))
    axes = st.integers(-x.ndim, x.ndim - 1)
    found = [
        st.permutations(range(x.ndim)).map(lambda order: Step(lambda a: a.transpose(*order))),
        st.permutations(range(x.ndim)).map(lambda order: Step(np.transpose, (order,))),
        st.just(Step(lambda a: a.T)),
        st.builds(lambda a, b: Step(np.moveaxis, (a, b)), axes, axes),
        st.builds(lambda a, b: Step(np.swapaxes, (a, b)), axes, axes),
        st.lists(axes, unique_by=lambda axis: axis % x.ndim, max_size=3).flatmap(
            lambda come: st.permutations(come).map(lambda go: Step(np.moveaxis, (come, go)))
        ),
        st.one_of(st.none(), axes).map(lambda axis: Step(np.flip, (axis,))),
    ]
    return st.one_of(found)


def indices(x: np.ndarray) -> st.SearchStrategy[Step]:
    bound = st.one_of(st.none(), st.integers(-8, 8), st.just(2**31 - 1))
    step = st.sampled_from([None, 1, 2, 3, -1, -2])
    each = [
        st.one_of(
            st.builds(slice, bound, bound, step),
            st.integers(-size, size - 1) if size else st.just(slice(None)),
            st.just(slice(None)),
        )
        for size in x.shape
    ]

    def placed(items: tuple[Any, ...], cut: int, end: int, new: int | None) -> Step:
        index = [*items[:cut], ..., *items[max(cut, end) :]]
        if new is not None:
            index.insert(new % (len(index) + 1), None)
        return Step(operator.getitem, (tuple(index),))

    place = st.integers(0, x.ndim)
    return st.builds(placed, st.tuples(*each), place, place, st.one_of(st.none(), place))


def spreads(x: np.ndarray) -> st.SearchStrategy[Step]:
    lead = st.lists(st.integers(1, 3), max_size=2)
    grown = st.tuples(*[SIZES if size == 1 else st.just(size) for size in x.shape])
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    return st.one_of(
        st.builds(lambda a, b: Step(np.broadcast_to, shape=(*a, *b)), lead, grown),
        st.integers(-x.ndim - 1, x.ndim).map(lambda axis: Step(np.expand_dims, (axis,))),
        st.just(Step(np.expand_dims, ((0, -1),))),
        st.sampled_from([None, tuple(ones), *ones]).map(lambda axes: Step(np.squeeze, (axes,))),
        st.sampled_from([np.atleast_1d, np.atleast_2d, np.atleast_3d]).map(Step),
    )


def parts(x: np.ndarray) -> st.SearchStrategy[Step]:
    found: list[st.SearchStrategy[Step]] = [st.just(Step(lambda a: a.real))]
    for axis, size in enumerate(x.shape):
        found += [
            st.just(Step(lambda a, axis=axis, size=size: np.split(a, max(size, 1), axis)[-1])),
            st.lists(st.integers(0, size), max_size=3).map(
                lambda cuts, axis=axis: Step(lambda a: np.split(a, sorted(cuts), axis)[0])
            ),
            st.integers(1, max(size, 1)).map(
                lambda n, axis=axis: Step(lambda a: sliding_window_view(a, n, axis) if n <= a.shape[axis] else a)
            ),
        ]
    if x.ndim > 1:
        pairs = st.permutations(range(x.ndim)).map(lambda order: tuple(order[:2]))
        found.append(st.builds(lambda k, pair: Step(np.diagonal, (k, *pair)), st.integers(-3, 3), pairs))
    if x.ndim:
        found.append(st.just(Step(lambda a: a[:2])))  # no Ellipsis
    if x.dtype.kind == "c":
        found.append(st.just(Step(lambda a: a.imag)))
    for dtype in ("int8", "float32", "complex64"):
        width = np.dtype(dtype).itemsize
        is_close = x.ndim > 0 and x.strides[-1] == x.itemsize and x.shape[-1] * x.itemsize % width == 0
        if width == x.itemsize or is_close:
            found.append(st.just(Step(lambda a, dtype=dtype: a.view(np.dtype(dtype)))))
    return st.one_of(found)


def begin(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def check_agrees(x: Strided, array: np.ndarray, base: np.ndarray) -> None:
    assert (numbers(x.shape), x.dtype, x.ndim) == (array.shape, array.dtype, array.ndim)
    assert (plain(x.size), plain(x.nbytes), x.itemsize) == (array.size, array.nbytes, array.itemsize)
    assert x.is_contiguous == array.flags.c_contiguous
    if array.size:
        steps = zip(array.shape, numbers(x.strides), array.strides, strict=True)
        assert all(mine == its for size, mine, its in steps if size > 1)
        assert plain(x.offset) == begin(array) - begin(base)
        low, high = np.lib.array_utils.byte_bounds(array)
        assert numbers(x.bounds) == (low - begin(base), high - begin(base))


def check_chain(data: st.DataObject, wrap: Callable[[Any], Any]) -> None:
    """Draw operations one by one, and hold what they make of a meta tensor against what they make of an array."""
    shape, dtype = data.draw(SHAPES), data.draw(DTYPES)
    array = base = np.zeros(shape, dtype)
    x = empty(wrap(shape), dtype)
    for _ in range(data.draw(st.integers(1, MOST_STEPS))):
        step = data.draw(data.draw(st.sampled_from([reshapes, orders, indices, spreads, parts]))(array))
        seen, made = step(x, wrap), step(array)
        if made.ndim > 6:
            return
        if made.size:
            assert (seen.memory is x.memory) == np.may_share_memory(made, base)
        if seen.memory is not x.memory:
            base = made
        x, array = seen, made
        check_agrees(x, array, base)


@given(st.data())
def test_chains_of_operations_agree_with_numpy(data: st.DataObject) -> None:
    check_chain(data, tuple)


@given(st.data())
def test_chains_of_operations_never_ask_for_a_number(data: st.DataObject) -> None:
    check_chain(data, sizes)


X = empty((2, 3, 4), np.dtype(np.float32))


@pytest.mark.parametrize(
    ("run", "error"),
    [
        (lambda a: a.reshape(5, 5), ValueError),
        (lambda a: a.reshape(-1, -1), ValueError),
        (lambda a: a.reshape(-1, 5), ValueError),
        (lambda a: a.reshape(-1, 0), ValueError),
        (lambda a: a.reshape(-2, -3, 4), ValueError),
        (lambda a: a.transpose(0, 1), ValueError),
        (lambda a: a.transpose(0, 1, 1), ValueError),
        (lambda a: a.swapaxes(0, 3), np.exceptions.AxisError),
        (lambda a: np.moveaxis(a, (0, 1), 0), ValueError),
        (lambda a: np.moveaxis(a, (0, 0), (0, 1)), ValueError),
        (lambda a: np.squeeze(a, 0), ValueError),
        (lambda a: np.broadcast_to(a, (3, 4)), ValueError),
        (lambda a: np.broadcast_to(a, (2, 6, 4)), ValueError),
        (lambda a: np.split(a, 2, 1), ValueError),
        (lambda a: np.diagonal(a, 0, 1, 1), ValueError),
        (lambda a: sliding_window_view(a, 5, 2), ValueError),
        (lambda a: sliding_window_view(a, (1, 1), 2), ValueError),
        (lambda a: a[2], IndexError),
        (lambda a: a[:, -4], IndexError),
        (lambda a: a[0, 0, 0, 0], IndexError),
        (lambda a: a[::0], ValueError),
        (lambda a: a.view(np.dtype(np.complex64))[..., ::-1].view(np.dtype(np.int8)), ValueError),
        (lambda a: a[..., :3].view(np.dtype(np.complex64)), ValueError),
        (lambda a: a[0, 0, 0, ...].view(np.dtype(np.int8)), ValueError),
        (lambda a: len(a[0, 0, 0, ...]), TypeError),
    ],
)
def test_numpy_and_meta_tensors_refuse_the_same(run: Callable[[Any], Any], error: type[Exception]) -> None:
    for x in (X, np.zeros(X.shape, X.dtype)):
        with pytest.raises(error):
            run(x)


@pytest.mark.parametrize(
    "run",
    [
        np.asarray,
        np.ascontiguousarray,
        lambda a: np.concatenate([a, a]),
        lambda a: np.reshape(a, -1, order="F"),
        lambda a: a[[0, 1]],
        lambda a: a[np.array([0, 1])],
        lambda a: a[True],
    ],
)
def test_what_needs_elements_is_refused(run: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError):
        run(X)


def test_copies_lie_in_memory_of_their_own() -> None:
    z = empty((2, 3), np.dtype(np.complex64)).T
    for copied in (X.copy(), X.imag, z.conj(), z.reshape(-1)):
        assert copied.memory not in (X.memory, z.memory) and copied.is_contiguous
        assert copied.memory.nbytes == copied.nbytes
    assert X.conj() is X and X.real is X


def test_numbers_of_numpy_become_those_of_python() -> None:
    two = np.int64(2)
    seen = X[np.int64(1) :, two, :two].reshape(np.array([1, 2])).as_strided((two,), (two,))
    for number in (*seen.shape, *seen.strides, seen.offset, seen.size):
        assert type(number) is int


def test_iteration_gives_the_parts_along_the_first_dimension() -> None:
    assert [(each.shape, each.offset) for each in X] == [((3, 4), 0), ((3, 4), 48)]
    assert len(X) == np.shape(X)[0] and np.ndim(X) == 3 and np.size(X) == 24
