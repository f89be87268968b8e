"""Ensembles of decision trees: random forests, boosted trees.

A place is a node's index, or -1 - k for leaf k. A node's children have higher indices than itself, so that traversal
always ends.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np

from engine.cancellation import check_cancelled
from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.limits import check_size
from engine.tensor import Array, DType, TensorSpec, format_shape

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
"""Comparison modes of nodes."""

_FLOAT32: Final[DType] = np.dtype(np.float32)
_AT_ONCE: Final = 1 << 18
"""Maximum places of rows in trees that are traversed at once."""

_JOINED: Final = {"MIN": np.minimum, "MAX": np.maximum}
_COMPARED: Final = {
    LEQ: np.less_equal, LT: np.less, GTE: np.greater_equal, GT: np.greater, EQ: np.equal, NEQ: np.not_equal,
}  # fmt: skip


def table_shape(shape: tuple[int | None, ...]) -> tuple[int | None, int | None]:
    """Return rows and columns of features; a vector is one row.

    Raises:
        ShapeError: there are more than two dimensions, or none.
    """
    if not 0 < len(shape) < 3:
        raise ShapeError("no table of features", found=format_shape(shape), expected="[N, F] or [F]")
    return (shape[0], shape[1]) if len(shape) == 2 else (1, shape[0])


def as_table(input: Array) -> Array:
    """Return features as rows and columns."""
    table_shape(input.shape)
    return input if input.ndim == 2 else input.reshape(1, -1)


@register("onnx.TreeEnsemble")
class TreeEnsemble(Layer):
    """Aggregate of the leaf values that a row reaches, for each target.

    The core has no walk through trees.

    Parameters:
        targets: number of targets.
        narrow: return float32 for features of any dtype.

    Operands:
        mode, feature, split, missing: comparison, column and threshold of each node, and whether NaN counts as true.
        true, false: places of the children.
        roots: places of the root nodes.
        first, target, weight: bounds of each leaf's entries, and the target and value of each entry.
        sets, members: bounds of each node's set of values, and the sorted values.
        base: added to each target.

    Shapes:
        input (N, F) or (F)  ->  (N, targets)
    """

    loops = True

    targets: int
    aggregate: Literal["SUM", "AVERAGE", "MIN", "MAX"] = "SUM"
    narrow: bool = True

    def infer(self, input: TensorSpec, *tables: Any, **named: Any) -> TensorSpec:
        return TensorSpec((table_shape(input.shape)[0], self.targets), self._result_dtype(input.dtype))

    def forward(
        self,
        input: Array,
        mode: Array,
        feature: Array,
        split: Array,
        missing: Array,
        true: Array,
        false: Array,
        roots: Array,
        first: Array,
        target: Array,
        weight: Array,
        base: Array,
        sets: Array | None = None,
        members: Array | None = None,
    ) -> Array:
        check_forest(mode, feature, split, missing, true, false, roots, first, target, weight, self.targets)
        _check_sets(mode, sets, members)
        x = as_table(input)
        if feature.size and int(feature.max()) >= x.shape[1]:
            raise ShapeError("too few features", found=x.shape[1], expected=f"at least {int(feature.max()) + 1}")
        working: DType = np.dtype(np.float64) if x.dtype == np.float64 else _FLOAT32
        check_size((len(x), self.targets), working)
        scores = np.zeros((len(x), self.targets), working)
        rows = max(_AT_ONCE // max(len(roots), 1), 1)
        for begin in range(0, len(x), rows):
            part = x[begin : begin + rows].astype(working, copy=False)
            leaves = _Walk(part, mode, feature, split.astype(working), missing, true, false, sets, members).leaves(
                roots
            )
            self._add(scores[begin : begin + rows], leaves, first, target, weight.astype(working))
        if self.aggregate == "AVERAGE" and len(roots):
            scores /= len(roots)
        return np.asarray((scores + base.astype(working)).astype(self._result_dtype(input.dtype)))

    def flops(self, output: TensorSpec, *operands: object) -> int:
        return 16 * (output.size or 0)

    def _result_dtype(self, dtype: DType) -> DType:
        return _FLOAT32 if self.narrow else dtype

    def _add(self, scores: Array, leaves: Array, first: Array, target: Array, weight: Array) -> None:
        """Aggregate the leaf values, tree after tree.

        Args:
            leaves: leaf index by tree and row.
        """
        rows = np.broadcast_to(np.arange(leaves.shape[1]), leaves.shape)
        begin, count = first[leaves], first[leaves + 1] - first[leaves]
        most = int(count.max(initial=0))
        function: Any = _JOINED.get(self.aggregate, np.add)
        is_sum = function is np.add
        if not is_sum:
            scores[...] = np.inf if self.aggregate == "MIN" else -np.inf
        is_voted = np.zeros(scores.shape, np.bool_)
        for k in range(most):
            check_cancelled()
            has = count > k
            entry, row = (begin[has] + k), rows[has]
            function.at(scores, (row, target[entry]), weight[entry])
            is_voted[row, target[entry]] = True
        if not is_sum:
            scores[~is_voted] = 0


class _Walk:
    """Traversal of trees by rows."""

    def __init__(
        self,
        x: Array,
        mode: Array,
        feature: Array,
        split: Array,
        missing: Array,
        true: Array,
        false: Array,
        sets: Array | None,
        members: Array | None,
    ) -> None:
        self._x, self._mode, self._feature, self._split = x, mode, feature, split
        self._missing, self._true, self._false = missing, true, false
        self._sets, self._members = sets, members if members is None else members.astype(x.dtype)
        self._modes = np.unique(mode).tolist()
        self._has_missing = bool(missing.any())

    def leaves(self, roots: Array) -> Array:
        """Return the leaf index of each tree and row."""
        places = np.repeat(roots.astype(np.int64)[:, None], len(self._x), 1)
        flat = places.reshape(-1)
        rows = np.tile(np.arange(len(self._x)), len(roots))
        going = np.flatnonzero(flat >= 0)
        while going.size:
            check_cancelled()
            node = flat[going]
            value = self._x[rows[going], self._feature[node]]
            following = np.where(self._is_true(node, value), self._true[node], self._false[node])
            flat[going] = following
            going = going[following >= 0]
        return -1 - places

    def _is_true(self, node: Array, value: Array) -> Array:
        with np.errstate(invalid="ignore"):
            if len(self._modes) == 1:
                found = self._compared(self._modes[0], node, value)
            else:
                found, mode = np.zeros(node.shape, np.bool_), self._mode[node]
                for each in self._modes:
                    chosen = mode == each
                    found[chosen] = self._compared(each, node[chosen], value[chosen])
        return found | (self._missing[node] & np.isnan(value)) if self._has_missing else found

    def _compared(self, mode: int, node: Array, value: Array) -> Array:
        if mode == MEMBER:
            return self._is_member(node, value)
        return np.asarray(_COMPARED[mode](value, self._split[node]))

    def _is_member(self, node: Array, value: Array) -> Array:
        """Return whether each value is in its node's set, by binary search."""
        if self._sets is None or self._members is None or not self._members.size:
            return np.zeros(value.shape, np.bool_)
        low, end = self._sets[node], self._sets[node + 1]
        high, last = end.copy(), len(self._members) - 1
        while (low < high).any():
            middle = (low + high) // 2
            is_less = (self._members[np.minimum(middle, last)] < value) & (low < high)
            low, high = np.where(is_less, middle + 1, low), np.where(is_less | (low >= high), high, middle)
        return np.asarray((low < end) & (self._members[np.minimum(low, last)] == value))


def check_forest(
    mode: Array, feature: Array, split: Array, missing: Array, true: Array, false: Array,
    roots: Array, first: Array, target: Array, weight: Array, targets: int,
) -> None:  # fmt: skip
    """Refuse trees with children out of range or cycles.

    Raises:
        ParameterError: it names the faulty table.
    """
    nodes, leaves = len(mode), len(first) - 1
    if any(each.shape != (nodes,) for each in (feature, split, missing, true, false)) or first.ndim != 1 or leaves < 0:
        raise ParameterError("tables of trees are not equally long", expected=f"{nodes:,} nodes")
    number = np.arange(nodes)
    for name, place in (("true", true), ("false", false), ("roots", roots)):
        if place.size and not (-leaves <= int(place.min()) and int(place.max()) < nodes):
            raise ParameterError(f"'{name}' leads out of the trees", expected=f"{nodes:,} nodes and {leaves:,} leaves")
        if name != "roots" and bool(((place >= 0) & (place <= number)).any()):
            raise ParameterError(f"'{name}' leads back", expected="children after their parents")
    if feature.size and int(feature.min()) < 0 or mode.size and not 0 <= int(mode.min()) <= int(mode.max()) <= MEMBER:
        raise ParameterError("no such feature or mode in a tree", expected="features from 0, modes from 0 to 6")
    _check_entries(first, target, weight, targets)


def _check_entries(first: Array, target: Array, weight: Array, targets: int) -> None:
    if target.shape != weight.shape or not is_division(first, len(target)):
        raise ParameterError("entries of leaves do not fit", found=f"{len(target):,} targets, {len(weight):,} weights")
    if target.size and not 0 <= int(target.min()) <= int(target.max()) < targets:
        raise ParameterError("no such target", found=int(target.max()), expected=f"0 to {targets - 1}")


def _check_sets(mode: Array, sets: Array | None, members: Array | None) -> None:
    if sets is None or members is None:
        if bool((mode == MEMBER).any()):
            raise ParameterError("a set of a tree is missing", expected="sets and members")
    elif sets.shape != (len(mode) + 1,) or not is_division(sets, len(members)):
        raise ParameterError("sets of trees do not fit", found=f"{len(members):,} members")


def is_division(bounds: Array, length: int) -> bool:
    """Return whether bounds divide a list of that length."""
    rises = bool((bounds[1:] >= bounds[:-1]).all())
    return bounds.ndim == 1 and len(bounds) > 0 and rises and int(bounds[0]) == 0 and int(bounds[-1]) == length
