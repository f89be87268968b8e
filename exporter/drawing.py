"""Example inputs: values of several kinds, integers from the range that the model takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from exporter.inputs import DTYPES, InputSpec
from exporter.ranges import Range, is_integer

PLAIN: Final = "plain"
"""Normally distributed, or 0 and 1, which are valid as indices, masks and counts."""
SPREAD: Final = "spread"
"""The same, with integers from their whole range."""
REPEATED: Final = "repeated"
"""Few values, so that many are equal."""
LARGE: Final = "large"
"""Large values, and integers that differ from each other."""
NEGATIVE: Final = "negative"
"""Negative values, and integers of either sign if PyTorch accepts them."""


def draw(kind: str, inputs: Sequence[InputSpec], ranges: Sequence[Range | None], seed: int) -> tuple[Any, ...]:
    """Draw a tensor for each input.

    Args:
        kind: PLAIN or one of KINDS.
        inputs: shapes and dtypes.
        ranges: of the integers; None where the input has none.
        seed: of the values.
    """
    generator = torch.Generator().manual_seed(seed)
    return tuple(_drawn(kind, spec, each, generator) for spec, each in zip(inputs, ranges, strict=True))


def _drawn(kind: str, spec: InputSpec, range: Range | None, generator: Any) -> Any:
    dtype, uniform = getattr(torch, DTYPES[spec.dtype]), torch.rand(spec.shape, generator=generator)
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.promote_types(dtype, torch.float32)
        return _FLOATS[kind](torch.randn(spec.shape, generator=generator, dtype=wide)).to(dtype)
    if not is_integer(spec) or range is None:
        return _BOOLEANS[kind](uniform).to(dtype)
    if kind == PLAIN:
        return ((uniform < 0.5) + range.start).minimum(range.high).to(dtype)
    return _INTEGERS[kind](uniform.double(), range.low, range.high).to(dtype)


def _halves(x: Any) -> Any:
    """Round to halves, so that many values are equal, zeros included."""
    return torch.view_as_complex(_halves(torch.view_as_real(x))) if x.is_complex() else (2 * x).round() / 2


def _over_the_range(u: Any, low: Any, high: Any) -> Any:
    """Draw any integers from 0 up, including the largest."""
    values = (u * (high - low.clamp(min=0) + 1)).floor() + low.clamp(min=0)
    rows = values.view(-1, high.numel())
    if len(rows) > 1:
        rows[-1] = high
    return values


def _few(u: Any, low: Any, high: Any) -> Any:
    """Draw the ends of the range, zero and the middle, each of them often."""
    ends = torch.stack(torch.broadcast_tensors(low, high, low.clamp(min=0), (low + high) // 2, low.clamp(min=0) + 1))
    picked = (u * len(ends)).long().clamp(max=len(ends) - 1)
    few = ends.expand(len(ends), u.shape[-1])
    return few[picked, torch.arange(u.shape[-1])].minimum(high)


def _distinct(u: Any, low: Any, high: Any) -> Any:
    """Draw integers that all differ, as far as the range has as many, in any order."""
    order = u.flatten().argsort().reshape(u.shape)
    first, size = low.clamp(min=0), high - low.clamp(min=0) + 1
    return first + order * (size // u.numel()).clamp(min=1) % size


def _below_zero(u: Any, low: Any, high: Any) -> Any:
    """Draw integers from the whole range, small ones of either sign more often."""
    values = ((2 * u - 1).abs() * (high.maximum(-low) + 1).log2()).exp2().floor() * (2 * u - 1).sign()
    return values.minimum(high).maximum(low)


_FLOATS: Final[dict[str, Callable[[Any], Any]]] = {
    PLAIN: lambda x: x,
    SPREAD: lambda x: x,
    REPEATED: _halves,
    LARGE: lambda x: 100 * x,
    NEGATIVE: lambda x: x if x.is_complex() else -x.abs(),
}
_INTEGERS: Final[dict[str, Callable[[Any, Any, Any], Any]]] = {
    SPREAD: _over_the_range,
    REPEATED: _few,
    LARGE: _distinct,
    NEGATIVE: _below_zero,
}
_BOOLEANS: Final[dict[str, Callable[[Any], Any]]] = {
    PLAIN: lambda u: u < 0.5,
    SPREAD: lambda u: u < 0.5,
    REPEATED: lambda u: u.sort(-1).values < 0.7,
    LARGE: lambda u: u < 0.9,
    NEGATIVE: lambda u: u < 0.2,
}
KINDS: Final = (SPREAD, REPEATED, LARGE, NEGATIVE)
"""Kinds of values that are tried in addition to plain ones; PyTorch may refuse them, or return no numbers for them."""
