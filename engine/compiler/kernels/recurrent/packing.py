"""Packing of weights in the order the code reads them, and of the gates of the input projection."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.compiler.kernels.channels import Panel, width_of
from engine.tensor import Array


def gate_rows(panels: Sequence[Panel], gates: int, units: int) -> list[Array]:
    """Return for each panel the row of a (gates * units, ...) matrix for each lane, gate by gate; -1 for padding."""
    found, first = [], 0
    for panel in panels:
        inside: list[int] = []
        for lanes, real in panel:
            inside += [*range(first, first + real), *[-1] * (lanes - real)]
            first += real
        unit = np.array(inside)
        found.append(np.concatenate([np.where(unit < 0, -1, unit + gate * units) for gate in range(gates)]))
    return found


def spread(matrix: Array, rows: Array) -> Array:
    """Return rows of a matrix, or elements of a vector; zeros for the row -1."""
    result = np.zeros((len(rows), *matrix.shape[1:]), matrix.dtype)
    result[rows >= 0] = matrix[rows[rows >= 0]]
    return result


def packed_panels(matrix: Array, rows: Sequence[Array], heads: Sequence[Array] | None = None) -> Array:
    """Pack a (rows, taps) matrix as consecutive panels: an optional head, then tap by tap.

    The last panel is padded to the size of the others.
    """
    pieces = []
    for k, each in enumerate(rows):
        panel = spread(matrix, each).T.reshape(-1)
        pieces.append(panel if heads is None else np.concatenate([heads[k], panel]))
    size = len(pieces[0])
    return np.concatenate([np.pad(piece, (0, size - len(piece))) for piece in pieces])


def widths(panels: Sequence[Panel]) -> int:
    """Return the floats of all panels together."""
    return sum(map(width_of, panels))
