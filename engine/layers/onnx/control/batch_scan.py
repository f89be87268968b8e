"""Scan of operator set 8: over a batch whose items may differ in length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.cancellation import cancellable
from engine.errors import ShapeError
from engine.layers.definition.registry import register
from engine.layers.onnx.control.control import Scan
from engine.layers.onnx.operands.constants import whole_numbers
from engine.limits import check_size
from engine.tensor import UNKNOWN, Array


@register("onnx.BatchScan")
class BatchScan(Scan):
    """Scan of each item of a batch; stacked results are padded with zeros to the longest item.

    The core has no loop over items of different lengths.

    Parameters:
        has_lengths: the first operand is the length of each item.

    Shapes:
        states (N, ...), inputs (N, T, ...)  ->  states (N, ...), outputs (N, T, ...)
    """

    has_lengths: bool = False

    def infer(self, *operands: Any) -> Any:
        return UNKNOWN if self.count == 1 else (UNKNOWN,) * self.count

    def subgraph_inputs(self, operands: Sequence[Any]) -> list[tuple[Any, Sequence[Any]]]:
        return []

    def forward(self, *operands: Any) -> Any:
        lengths = whole_numbers(operands[0], "sequence_lens") if self.has_lengths else None
        states, scanned, captured = self.parts(operands[1:] if self.has_lengths else operands)
        batch, longest = _sizes(states, scanned)
        lengths = (longest,) * batch if lengths is None else lengths
        if len(lengths) != batch or not all(0 <= each <= longest for each in lengths):
            raise ShapeError("sequence_lens do not fit", found=list(lengths)[:8], expected=f"{batch} up to {longest}")
        rows = []
        for item in cancellable(range(batch)):
            pieces = [each[item, : lengths[item]] for each in scanned]
            row = super().forward(*(each[item] for each in states), *pieces, *captured)
            rows.append((row,) if self.count == 1 else row)
        columns = list(zip(*rows, strict=True))
        joined = [np.stack(each) for each in columns[: self.states]]
        return self.results([*joined, *(_filled(each, longest) for each in columns[self.states :])])


def _sizes(states: Sequence[Array], scanned: Sequence[Array]) -> tuple[int, int]:
    """Return the number of items and the length of the longest."""
    if not scanned or any(each.ndim < 2 for each in scanned) or any(not each.ndim for each in states):
        raise ShapeError("nothing to scan", found=f"{len(scanned)} inputs", expected="[N, T, ...]")
    sizes = {each.shape[:2] for each in scanned}
    if len(sizes) != 1 or {each.shape[0] for each in states} - {scanned[0].shape[0]} or not scanned[0].shape[0]:
        raise ShapeError("inputs to scan differ in batch or length", found=sorted(sizes), expected="one of each")
    return scanned[0].shape[0], scanned[0].shape[1]


def _filled(items: Sequence[Array], longest: int) -> Array:
    shape = (len(items), longest, *items[0].shape[1:])
    check_size(shape, items[0].dtype)
    found = np.zeros(shape, items[0].dtype)
    for row, item in zip(found, items, strict=True):
        row[: len(item)] = item
    return found
