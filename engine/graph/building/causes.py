"""Why a computed shape or dtype contradicts the file: what the converter is known to lose on the way.

Each row is a loss described in the PNNX converter's own behaviour; the first that fits is named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.graph.operator import RuntimeOperator
from engine.tensor import TensorSpec

Fits = Callable[[RuntimeOperator, TensorSpec, TensorSpec], bool]


def _is(*types: str) -> Fits:
    return lambda op, computed, annotated: op.type in types


def _becomes_float(op: RuntimeOperator, computed: TensorSpec, annotated: TensorSpec) -> bool:
    return computed.dtype.kind in "biu" and annotated.dtype.kind == "f" and computed.shape == annotated.shape


def _becomes_integral(op: RuntimeOperator, computed: TensorSpec, annotated: TensorSpec) -> bool:
    return op.type == "pnnx.Expression" and computed.dtype.kind == "f" and annotated.dtype.kind in "iu"


def _is_squeezed(op: RuntimeOperator, computed: TensorSpec, annotated: TensorSpec) -> bool:
    kept = tuple(dim for dim in computed.shape if dim != 1)
    return computed.rank > annotated.rank and tuple(dim for dim in annotated.shape if dim != 1) == kept


def _differs_in_size(op: RuntimeOperator, computed: TensorSpec, annotated: TensorSpec) -> bool:
    return computed.dtype == annotated.dtype and computed.rank == annotated.rank


CAUSES: Final[tuple[tuple[Fits, str], ...]] = (
    (_is("Tensor.index"), "a constant index with two or more dimensions is exported as its first row only"),
    (_is("Tensor.slice", "Tensor.select"), "a select followed by a select from the end is exported with one dim twice"),
    (_is("torch.einsum"), "the ellipsis of an equation with several operands is lost"),
    (_is("nn.LSTM", "nn.GRU", "nn.RNN"), "recurrent outputs are exported in the order in which the model uses them"),
    (
        _is("nn.MultiheadAttention"),
        "attention masks are exported first and under the input's name; export with --opt-level 1",
    ),
    (_is("torch.as_strided"), "storage_offset is dropped"),
    (
        _is("nn.PixelShuffle", "nn.PixelUnshuffle", "nn.ChannelShuffle"),
        "another reshape and permutation is taken for a shuffle; export with --opt-level 1",
    ),
    (_is_squeezed, "a squeeze_ after another in-place one is dropped; squeeze without the underscore is kept"),
    (_becomes_integral, "div(rounding_mode='floor') is exported as a plain division"),
    (_becomes_float, "multiplying integers by 1.0, or dividing them by 1, is dropped although it changes the dtype"),
    (_differs_in_size, "a slice on an open dimension is dropped; export it with a bound taken from the size"),
)


def likely_cause(op: RuntimeOperator, computed: TensorSpec, annotated: TensorSpec) -> str | None:
    """What the converter probably lost, None where nothing known fits."""
    return next((cause for fits, cause in CAUSES if fits(op, computed, annotated)), None)
