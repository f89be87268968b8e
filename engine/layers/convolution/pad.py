"""Padding: constant, reflected, replicated, circular; negative amounts crop.

Amounts are pairs (before, after). PyTorch lists them from the last axis to the first; the functions here take them in
the order of the axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.ir.dims import smallest
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.fitting import check_number, check_single
from engine.layers.operands.spatial import Operand, of_last_axes, tensor
from engine.limits import check_size
from engine.promotion import cast
from engine.tensor import Array, Dim, Number, TensorSpec, format_shape

Pair: TypeAlias = tuple[Dim, Dim]


@register("F.pad", positional=("input", "pad", "value"))
class Pad(Layer):
    """The input with more, or less, around it.

    Parameters:
        pad: (before, after) of the last axis, then of the one before it, ...; negative amounts crop.
        mode: constant, reflect (the border is not repeated), replicate (the border is) or circular.
    Dtypes:
        any.
    Raises:
        ParameterError: for an unknown mode or an odd number of amounts.
        ShapeError: when the input is too small to be reflected, wrapped around or cropped so far.
    Source:
        torch.nn.functional.pad.
    """

    pad: tuple[Dim, ...]
    mode: str = "constant"

    def __post_init__(self) -> None:
        if len(self.pad) % 2:
            raise ParameterError("pad does not come in pairs", found=list(self.pad))
        if self.mode not in ("constant", *_SOURCES):
            raise ParameterError("unknown mode", found=self.mode, expected=f"constant, {', '.join(_SOURCES)}")

    @property
    def pairs(self) -> list[Pair]:
        """Amounts (before, after) in the order of the axes."""
        return list(zip(self.pad[::2], self.pad[1::2], strict=True))[::-1]

    def infer(self, input: Operand, value: object = None) -> TensorSpec:
        spec = tensor(input)
        if self.mode == "constant":
            check_number(value, spec.dtype)
        return TensorSpec(padded_shape(spec.shape, self.pairs, self.mode), spec.dtype)

    def forward(self, input: Array, value: Number | Array | None = None) -> Array:
        check_single(value)
        self.infer(input, value.item() if isinstance(value, np.ndarray) else value)
        pairs = [(before or 0, after or 0) for before, after in self.pairs]
        return extend(input, pairs, self.mode, 0 if value is None else value)


def padded_shape(shape: Sequence[Dim], pairs: Sequence[Pair], mode: str = "constant") -> tuple[Dim, ...]:
    """Return the shape after padding the last axes, None where a size or an amount is dynamic.

    Raises:
        ShapeError: when there are more pairs than axes, or an axis is too small for the amounts.
    """
    if len(pairs) > len(shape):
        expected = f"at least {len(pairs)} dimensions"
        raise ShapeError("more axes to pad than the input has", found=format_shape(shape), expected=expected)
    lead = len(shape) - len(pairs)
    sizes = [_padded_size(size, pair, mode) for size, pair in zip(shape[lead:], pairs, strict=True)]
    return (*shape[:lead], *sizes)


def _padded_size(size: Dim, pair: Pair, mode: str) -> Dim:
    before, after = pair
    if size is None or before is None or after is None:
        return None
    kept = size + smallest(before, 0) + smallest(after, 0)
    is_copied = mode != "constant" and (before, after) != (0, 0)
    if (is_copied and size < 1) or size + before + after < 0 or (kept < 0 and mode in ("constant", "circular")):
        raise ShapeError("the padding removes all elements", found=f"{before} and {after} on size {size}")
    room = {"reflect": size - 1, "circular": kept}.get(mode)
    if room is not None and (before > room or after > room):
        found = f"{max(before, after)} on size {size}"
        raise ShapeError(f"too much padding for mode {mode}", found=found, expected=f"at most {room}")
    return size + before + after


def extend(x: Array, pairs: Sequence[tuple[int, int]], mode: str = "constant", value: Number | Array = 0) -> Array:
    """Return ``x`` padded along its last axes; the amounts have been checked with padded_shape().

    Raises:
        ShapeError: the result exceeds memory; amounts may come as operands of the run.
    """
    check_size(padded_shape(x.shape, pairs, mode), x.dtype, "the padded tensor")
    if mode == "constant":
        return _surround(x, pairs, value)
    for axis, (before, after) in enumerate(pairs, start=x.ndim - len(pairs)):
        if before or after:
            x = x.take(_SOURCES[mode](x.shape[axis], before, after), axis)
    return x


def _surround(x: Array, pairs: Sequence[tuple[int, int]], value: Number | Array) -> Array:
    crop = [slice(max(-before, 0), size - max(-after, 0)) for size, (before, after) in _sized(x, pairs)]
    x = x[of_last_axes(*crop)]
    if all(max(pair) <= 0 for pair in pairs):
        return x
    inner = [slice(max(before, 0), max(before, 0) + size) for size, (before, _) in _sized(x, pairs)]
    sizes = [max(before, 0) + size + max(after, 0) for size, (before, after) in _sized(x, pairs)]
    padded = np.full((*x.shape[: x.ndim - len(pairs)], *sizes), cast(value, x.dtype), x.dtype)
    padded[of_last_axes(*inner)] = x
    return padded


def _sized(x: Array, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, tuple[int, int]]]:
    return list(zip(x.shape[x.ndim - len(pairs) :], pairs, strict=True))


def _reflected(size: int, before: int, after: int) -> Array:
    inside = np.abs(np.arange(-before, size + after))
    return np.where(inside < size, inside, 2 * (size - 1) - inside)


def _replicated(size: int, before: int, after: int) -> Array:
    return np.clip(np.arange(-before, size + after), 0, size - 1)


def _wrapped(size: int, before: int, after: int) -> Array:
    # Negative amounts crop before the rest is wrapped around.
    kept = np.arange(max(-before, 0), size - max(-after, 0))
    return kept[np.arange(-max(before, 0), len(kept) + max(after, 0)) % len(kept)]


# mode -> function to the source index of each element of a padded axis.
_SOURCES: Final[dict[str, Callable[[int, int, int], Array]]] = {
    "reflect": _reflected,
    "replicate": _replicated,
    "circular": _wrapped,
}
