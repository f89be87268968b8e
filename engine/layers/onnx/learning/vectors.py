"""Support vector machines: class probabilities from those of pairs."""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.limits import check_scratch
from engine.tensor import Array, DType, TensorSpec, format_shape

_FLOAT32: Final[DType] = np.dtype(np.float32)
_ROUNDS: Final = 100


@register("onnx.PairProbabilities")
class PairProbabilities(Layer):
    """Class probabilities that best fit those of pairs (Wu, Lin and Weng, 2004).

    The core has no iteration until rows converge.

    Shapes:
        wins (N, K(K - 1)/2), the probability that the first class of each pair wins  ->  (N, K)
    """

    loops = True

    classes: int

    def infer(self, wins: TensorSpec) -> TensorSpec:
        _check_pairs(wins.shape, self.classes)
        return TensorSpec((wins.shape[0], self.classes), _FLOAT32)

    def forward(self, wins: Array) -> Array:
        shape = (len(wins), self.classes, self.classes)
        check_scratch(shape, np.dtype(np.float64), wins.nbytes, "the table of pairs")
        with np.errstate(all="ignore"):
            first, table = wins.astype(np.float64), np.zeros(shape)
            for pair, (i, j) in enumerate(pairs(self.classes)):
                table[:, i, j], table[:, j, i] = first[:, pair], 1 - first[:, pair]
            return _agreed(table).astype(np.float32)


def _agreed(table: Array) -> Array:
    """Return probabilities by the fixed-point iteration of the paper's second method, until each row converges."""
    rows, count = len(table), table.shape[1]
    product = -table.transpose(0, 2, 1) * table
    diagonal = (table**2).sum(axis=1)
    product[:, np.arange(count), np.arange(count)] = diagonal
    found, going = np.full((rows, count), 1 / count), np.arange(rows)
    for _ in cancellable(range(_ROUNDS)):
        p, q = found[going], product[going]
        force = np.einsum("nij,nj->ni", q, p)
        total = (p * force).sum(axis=1)
        wrong = np.abs(force - total[:, None]).max(axis=1, initial=0) >= 0.005 / count
        going = going[wrong]
        if not going.size:
            break
        found[going] = _round(p[wrong], q[wrong], force[wrong], total[wrong])
    return found


def _round(p: Array, q: Array, force: Array, total: Array) -> Array:
    for k in range(p.shape[1]):
        own = q[:, k, k]
        step = (total - force[:, k]) / own
        p[:, k] += step
        total = (total + step * (step * own + 2 * force[:, k])) / (1 + step) ** 2
        force = (force + step[:, None] * q[:, k, :]) / (1 + step)[:, None]
        p = p / (1 + step)[:, None]
    return p


def pairs(classes: int) -> list[tuple[int, int]]:
    """Return the pairs (i, j), i < j, of classes."""
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def _check_pairs(shape: tuple[int | None, ...], classes: int) -> None:
    wanted_pairs = classes * (classes - 1) // 2
    if len(shape) != 2 or classes < 1 or shape[1] not in (None, wanted_pairs):
        expected = f"[N, {wanted_pairs}] for {classes} classes"
        raise ShapeError("no decision for each pair", found=format_shape(shape), expected=expected)
