"""Losses of the PNNX converter: likely causes of contradictions with the file, and operands that cannot be right.

``likely_cause`` explains a computed shape or dtype that contradicts the file's annotation; each row of its table is
a loss known from the converter's own behaviour. ``diagnose_export`` finds losses that no annotation shows.
``is_shape_of_later`` recognises contradictions of in-place operators, where nothing is lost: the tracer knows one
object where a model changes a tensor in place, so ``y.squeeze_(1)`` annotates ``y`` with the shape it has afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.cancellation import cancellable
from engine.errors import GraphError
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers.shape.permute import Reversal, Transpose
from engine.layers.shape.shape import AsStrided, Reshape, Squeeze, Unsqueeze
from engine.tensor import BFLOAT16, TensorSpec

Fits = Callable[[RuntimeOperator, TensorSpec, TensorSpec], bool]
Finding = tuple[str, str]
_FOLDED: Final = "pnnx_fold_"
_FUSED_BATCH_NORM: Final = re.compile(r"(conv|convtranspose|linear)bn[123]d_\d+")
_RESHAPING: Final = (Squeeze, Unsqueeze, Transpose, Reversal, AsStrided, Reshape)
"""In-place forms: squeeze_, unsqueeze_, transpose_ and swapaxes_, t_, strided views, resize_."""
_MAX_STEPS: Final = 64
"""Operators that are searched; real models change a tensor in place a few times in a row."""


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
    (_differs_in_size, "a slice on a dynamic dimension is dropped; export it with a bound taken from the size"),
)


def likely_cause(op: RuntimeOperator, computed: TensorSpec, annotated: TensorSpec) -> str | None:
    """Return what the converter probably lost; None where no known case fits."""
    return next((cause for fits, cause in CAUSES if fits(op, computed, annotated)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFinding:
    """An operand that cannot be what the model computed, although its shape and dtype fit.

    Args:
        operator: the operator that makes it, with its type.
        finding: what is odd about it, as the end of a sentence that begins with the operand.
        cause: what the converter probably lost.
    """

    operator: str
    operand: str
    finding: str
    cause: str

    def as_error(self) -> GraphError:
        """Return the error that a strict build raises."""
        return GraphError(f"operand '{self.operand}' {self.finding}; possible cause: {self.cause}", where=self.operator)

    def __str__(self) -> str:
        return str(self.as_error())


def _is_filled_already(op: RuntimeOperator) -> Finding | None:
    """Find an in-place fill of a constant, which the converter folded after its trial run had filled it."""
    value = op.params.get("value")
    constant = op.inputs[0].producer if op.type in ("Tensor.masked_fill", "aten::masked_fill") and op.inputs else None
    if constant is None or not constant.name.startswith(_FOLDED) or not isinstance(value, (int, float)):
        return None
    data = constant.attributes["data"].data
    if not data.size or not np.array_equal(data, np.full_like(data, value), equal_nan=data.dtype.kind == "f"):
        return None
    return (
        f"does not depend on its mask: '{constant.name}' is {value} everywhere, as is the value it is filled with",
        "a mask that is filled in place (the bool src_key_padding_mask of nn.TransformerEncoderLayer) is folded as the"
        " trial run of the conversion left it; export with --opt-level 1, a second input shape or a float mask",
    )


def _lost_batch_norm(op: RuntimeOperator) -> Finding | None:
    weight = op.attributes.get("weight")
    if weight is None or weight.dtype != BFLOAT16 or not _FUSED_BATCH_NORM.fullmatch(op.name):
        return None
    return (
        "comes without the batch normalisation that its operator's name promises",
        "batch normalisation after a bfloat16 layer is removed without changing the weights; export it as float32",
    )


CHECKS: Final[tuple[Callable[[RuntimeOperator], Finding | None], ...]] = (_is_filled_already, _lost_batch_norm)


def diagnose_export(operands: Iterable[RuntimeOperand], untyped: Collection[str]) -> Iterator[ExportFinding]:
    """Yield everything suspicious about the operands.

    Args:
        operands: of the whole graph.
        untyped: names of the operands that the file announces with the dtype ``null``.
    """
    for operand in cancellable(operands):
        maker = operand.producer
        if maker is None:
            continue
        findings = [check(maker) for check in CHECKS] if operand is maker.outputs[0] else []
        if operand.name in untyped:
            findings.append(("is of a dtype unknown to the converter", "a cast to uint16, float8 or the like is lost"))
        for finding in filter(None, findings):
            yield ExportFinding(operator=maker.where, operand=operand.name, finding=finding[0], cause=finding[1])


def is_shape_of_later(operand: RuntimeOperand) -> bool:
    """Return whether an operand is annotated with the shape that later in-place operators give it."""
    waiting = [(operand, False)]
    for _ in range(_MAX_STEPS):
        if not waiting:
            return False
        current, is_reshaped = waiting.pop(0)
        if is_reshaped and _fits(current, operand.annotation):
            return True
        for op in current.consumers:
            if op.inputs[0] is current and len(op.outputs) == 1 and (keeps := _keeps_shape(op)) is not None:
                waiting.append((op.outputs[0], is_reshaped or not keeps))
    return False


def _keeps_shape(op: RuntimeOperator) -> bool | None:
    """Return whether an operator, if in place, keeps the shape of its first operand; None if it cannot be in place."""
    if isinstance(op.definition, _RESHAPING):
        return False
    before, after = op.inputs[0].spec, op.outputs[0].spec
    return True if before is not None and before == after else None


def _fits(operand: RuntimeOperand, annotated: TensorSpec | None) -> bool:
    computed, own = operand.spec, operand.annotation
    if computed is None or annotated is None or own != annotated or computed.dtype != annotated.dtype:
        return False
    dims = zip(computed.shape, annotated.shape, strict=False)
    return computed.rank == annotated.rank and all(a is None or b is None or a == b for a, b in dims)
