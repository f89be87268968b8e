"""Shapes, parts of tensors, and tensors made of nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.engine.onnx_files.models import onnx
from tests.engine.onnx_files.operators.example import Draws, Example, ex, of, opt, stored


def _both(value: Any) -> list[Any]:
    """An operand as an initializer, and as an input."""
    return [stored(value), np.asarray(value)]


@of("Shape", "Size")
def sizes(type: str, version: int) -> Iterator[Example]:
    yield ex(Draws().f(2, 3, 4))
    if type == "Shape" and version >= 15:
        for start, end in ((1, None), (None, -1), (-2, 3), (2, 1)):
            yield ex(Draws().f(2, 3, 4), start=start, end=end)


@of("Reshape")
def reshape(type: str, version: int) -> Iterator[Example]:
    x = Draws().f(2, 3, 4)
    if version < 5:
        yield ex(x, shape=[3, 8])
        yield ex(x, shape=[0, -1])
        return
    for shape in _both([0, -1]):
        yield ex(x, shape)
    yield ex(x, stored([4, 6]))
    if version >= 14:
        for allow in (None, 0, 1):
            yield ex(x, stored([2, 12]), allowzero=allow)
        yield ex(np.zeros((0, 3), np.float32), stored([3, 0]), allowzero=1)


@of("Flatten")
def flatten(type: str, version: int) -> Iterator[Example]:
    for axis in (None, 0, 2, 3, *([-1] if version >= 11 else [])):
        yield ex(Draws().f(2, 3, 4), axis=axis)


@of("Transpose")
def transpose(type: str, version: int) -> Iterator[Example]:
    for perm in (None, [1, 0, 2], [0, 2, 1]):
        yield ex(Draws().f(2, 3, 4), perm=perm)


@of("Squeeze", "Unsqueeze")
def squeezes(type: str, version: int) -> Iterator[Example]:
    x = Draws().f(1, 3, 1) if type == "Squeeze" else Draws().f(2, 3)
    given = [[0], [0, 2]] + ([[-1]] if version >= 11 else [])
    for axes in given:
        if version < 13:
            yield ex(x, axes=axes)
            continue
        for operand in _both(axes):
            yield ex(x, opt(operand) if type == "Squeeze" else operand)
    if type == "Squeeze" and version < 13:
        yield ex(x)


@of("Expand")
def expand(type: str, version: int) -> Iterator[Example]:
    for shape in ([2, 3], [4, 2, 3], [1]):
        for operand in _both(shape):
            yield ex(Draws().f(2, 1) if len(shape) > 1 else Draws().f(2, 3), operand)


@of("Tile")
def tile(type: str, version: int) -> Iterator[Example]:
    if version < 6:
        yield ex(Draws().f(2, 3), stored(np.array(2)), stored(np.array(1)))
        return
    for operand in _both([2, 3]):
        yield ex(Draws().f(2, 3), operand)


@of("Concat")
def concat(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for axis in (0, 1, *([-1] if version >= 11 else [])):
        yield ex(r.f(2, 3, 2), r.f(2, 3, 2), axis=axis)
    if version < 4:
        yield ex(r.f(2, 3, 2), r.f(2, 1, 2))


@of("Split")
def split(type: str, version: int) -> Iterator[Example]:
    x = Draws().f(6, 4)
    names = {"outputs": 2}
    if version < 13:
        yield ex(x, axis=1, **names)
        yield ex(x, axis=0, split=[2, 4], **names)
        yield ex(x, **names) if version >= 2 else ex(x, axis=0, **names)
        return
    number = {"num_outputs": 2} if version >= 18 else {}
    for axis in (None, 1, -1):
        yield ex(x, axis=axis, **number, **names)
    for operand in _both([2, 4]):
        yield ex(x, operand, **names)
    if version >= 18:
        yield ex(Draws().f(7, 2), outputs=3, num_outputs=3)


@of("Slice")
def cut(type: str, version: int) -> Iterator[Example]:
    x = Draws().f(4, 5)
    if version < 10:
        yield ex(x, starts=[1, 0], ends=[3, -1])
        yield ex(x, starts=[1], ends=[1000], axes=[1])
        return
    for make in (stored, np.asarray):
        yield ex(x, make([1, 0]), make([3, 4]), opt(make([1, 0])), opt(make([1, 2])))
        yield ex(x, make([-1]), make([-100]), opt(make([1])), opt(make([-1])))
        yield ex(x, make(np.array([0], np.int32)), make(np.array([2], np.int32)), None,
                 opt(make(np.array([2], np.int32))))  # fmt: skip


@of("Gather")
def gather(type: str, version: int) -> Iterator[Example]:
    for axis in (None, 1, *([-1] if version >= 11 else [])):
        for index in ([0, 2], [[1], [0]], 1):
            yield ex(Draws().f(3, 4), stored(index), axis=axis)
            yield ex(Draws().f(3, 4), np.array(index), axis=axis)
    if version >= 11:
        yield ex(Draws().f(3, 4), np.array([-1, 0]))


@of("GatherElements")
def gather_elements(type: str, version: int) -> Iterator[Example]:
    for axis in (None, 1, -1):
        yield ex(Draws().f(3, 4), np.array([[0, 2], [1, 0], [-1, 1]]), axis=axis)


@of("GatherND")
def gather_nd(type: str, version: int) -> Iterator[Example]:
    yield ex(Draws().f(3, 4), np.array([[0, 2], [1, 0]]))
    yield ex(Draws().f(3, 4), np.array([[0], [-1]]))
    if version >= 12:
        yield ex(Draws().f(2, 3, 4), np.array([[1], [0]]), batch_dims=1)


@of("Scatter", "ScatterElements")
def scatter(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    reductions = [None]
    if type == "ScatterElements":
        reductions += ["none", "add", "mul"] if version >= 16 else []
        reductions += ["max", "min"] if version >= 18 else []
    for axis in (None, 1, *([-1] if version >= 11 else [])):
        for reduction in reductions:
            yield ex(r.f(3, 4), np.array([[0, 2], [1, 0]]), r.f(2, 2), axis=axis, reduction=reduction)


@of("ScatterND")
def scatter_nd(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    reductions = [None] + (["add", "mul"] if version >= 16 else []) + (["max", "min"] if version >= 18 else [])
    for reduction in reductions:
        yield ex(r.f(3, 4), np.array([[0], [2]]), r.f(2, 4), reduction=reduction)


@of("TensorScatter")
def tensor_scatter(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for mode in (None, "circular"):
        yield ex(r.f(2, 3, 5, 4), r.f(2, 3, 2, 4), opt(np.array([1, 3])), mode=mode)
    yield ex(r.f(2, 5, 4), r.f(2, 2, 4), opt(np.array([1, 3])), axis=1)


@of("Compress")
def compress(type: str, version: int) -> Iterator[Example]:
    for axis in (None, 0, 1):
        yield ex(Draws().f(3, 4), np.array([True, False, True]), axis=axis)


@of("NonZero")
def non_zero(type: str, version: int) -> Iterator[Example]:
    yield ex(Draws().i(3, 4, low=0, high=2))


@of("OneHot")
def one_hot(type: str, version: int) -> Iterator[Example]:
    for axis in (None, 0, 1):
        yield ex(np.array([[0, 2], [-1, 1]]), stored(np.array(3)), stored(np.array([0.5, 2], np.float32)), axis=axis)


@of("Unique")
def unique(type: str, version: int) -> Iterator[Example]:
    x = Draws().i(3, 4, low=0, high=3)
    for given in ({}, {"sorted": 0}, {"axis": 0}, {"axis": 1, "sorted": 1}):
        yield ex(x, outputs=4, maybe=3, **given)
    yield ex(x.astype(np.float32), outputs=4, maybe=3)


@of("TopK")
def top_k(type: str, version: int) -> Iterator[Example]:
    x = Draws().f(3, 5)
    for axis in (None, 0, *([-1] if version >= 11 else [])):
        if version < 10:
            yield ex(x, k=2, axis=axis, outputs=2)
            continue
        for k in _both([2]):
            yield ex(x, k, axis=axis, outputs=2)
    if version >= 11:
        yield ex(x, stored([2]), outputs=2, largest=0)
        yield ex(Draws().i(3, 5), stored([3]), outputs=2)


@of("ArgMax", "ArgMin")
def arg_extremes(type: str, version: int) -> Iterator[Example]:
    x = np.array([[1, 3, 3, 0, 0], [2, 2, 1, 2, 1]], np.float32)
    given = [{}, {"axis": 1}, {"axis": 1, "keepdims": 0}]
    given += [{"axis": -1}] if version >= 11 else []
    given += [{"axis": 1, "select_last_index": 1}] if version >= 12 else []
    for each in given:
        yield ex(x, **each)


@of("ReverseSequence")
def reverse(type: str, version: int) -> Iterator[Example]:
    for given in ({}, {"time_axis": 1, "batch_axis": 0}):
        yield ex(Draws().f(3, 3, 2), np.array([1, 2, 3]), **given)


@of("Range")
def ranges(type: str, version: int) -> Iterator[Example]:
    for make in (stored, np.asarray):
        yield ex(make(np.array(1)), make(np.array(10)), make(np.array(3)))
        yield ex(make(np.float32(1)), make(np.float32(-1)), make(np.float32(-0.5)))


@of("EyeLike")
def eye(type: str, version: int) -> Iterator[Example]:
    for given in ({}, {"k": 1}, {"dtype": 7}, {"k": -1, "dtype": 11}):
        yield ex(Draws().f(3, 4), **given)


@of("Trilu")
def trilu(type: str, version: int) -> Iterator[Example]:
    for upper in (None, 0, 1):
        yield ex(Draws().f(3, 4), opt(stored(np.array(1))), upper=upper)
        yield ex(Draws().f(2, 3, 4), opt(np.array(-1)), upper=upper)


@of("ConstantOfShape")
def constant_of_shape(type: str, version: int) -> Iterator[Example]:
    for value in (None, np.array([3], np.int64), np.array([0.5], np.float32), np.array([1], np.bool_)):
        tensor = None if value is None else onnx.numpy_helper.from_array(value)
        for operand in _both([2, 3]):
            yield ex(operand, value=tensor)


@of("Constant")
def constants(type: str, version: int) -> Iterator[Example]:
    yield ex(value=onnx.numpy_helper.from_array(np.array([[1, 2.5]], np.float32)))
    if version >= 12:
        for given in ({"value_float": 0.5}, {"value_floats": [0.5, 2.0]}, {"value_int": 3}, {"value_ints": [3, 4]}):
            yield ex(**given)


@of("Pad")
def pad(type: str, version: int) -> Iterator[Example]:
    x = Draws().f(2, 3, 4)
    modes = ["constant", "reflect", "edge"] + (["wrap"] if version >= 19 else [])
    if version < 11:
        name = "paddings" if version < 2 else "pads"
        for mode in (None, *modes):
            yield ex(x, mode=mode, **{name: [0, 1, 2, 1, 0, 1]})
        yield ex(x, value=1.5, **{name: [0, 1, 0, 0, 0, 2]})
        return
    for make in (stored, np.asarray):
        for mode in (None, *modes):
            axes = (opt(make([1, 2])),) if version >= 18 else ()
            yield ex(x, make([0, 1, 2, 1, 0, 1]), opt(make(np.float32(1.5))), mode=mode)
            for each in axes:
                yield ex(x, make([1, 2, 0, 1]), opt(make(np.float32(1.5))), each, mode=mode, valid=_has_axes)
    yield ex(Draws().i(2, 3), stored([0, 1, 0, 0]), opt(stored(np.array(7))))


def _has_axes(given: frozenset[int]) -> bool:
    return 3 in given


@of("CenterCropPad")
def centred(type: str, version: int) -> Iterator[Example]:
    yield ex(Draws().f(4, 5), stored([2, 7]))
    yield ex(Draws().f(4, 5), np.array([3]), axes=[-1])


@of("DepthToSpace", "SpaceToDepth")
def blocks(type: str, version: int) -> Iterator[Example]:
    x = Draws().f(1, 8, 2, 3) if type == "DepthToSpace" else Draws().f(1, 2, 4, 6)
    modes = ["DCR", "CRD"] if version >= (11 if type == "DepthToSpace" else 28) else []
    for mode in (None, *modes):
        yield ex(x, blocksize=2, mode=mode)
