"""What the converter is known to lose where no shape or dtype shows it, but something else in the file does."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.errors import GraphError
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.stopping import wanted
from engine.tensor import BFLOAT16


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectedLoss:
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
        """What a strict build raises for it."""
        return GraphError(f"operand '{self.operand}' {self.finding}; perhaps {self.cause}", where=self.operator)

    def __str__(self) -> str:
        return str(self.as_error())


Finding = tuple[str, str]

_FOLDED: Final = "pnnx_fold_"
_FUSED_BATCH_NORM: Final = re.compile(r"(conv|convtranspose|linear)bn[123]d_\d+")


def _is_filled_already(op: RuntimeOperator) -> Finding | None:
    """An in-place fill of a constant: the converter folds the constant as the trial run left it, filled everywhere."""
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


def find_losses(operands: Iterable[RuntimeOperand], untyped: Collection[str]) -> Iterator[SuspectedLoss]:
    """Everything suspicious about the operands.

    Args:
        operands: of the whole graph.
        untyped: names of the operands that the file announces with the dtype ``null``.
    """
    for operand in wanted(operands):
        maker = operand.producer
        if maker is None:
            continue
        findings = [check(maker) for check in CHECKS] if operand is maker.outputs[0] else []
        if operand.name in untyped:
            findings.append(("is of a dtype unknown to the converter", "a cast to uint16, float8 or the like is lost"))
        for finding in filter(None, findings):
            yield SuspectedLoss(operator=maker.place, operand=operand.name, finding=finding[0], cause=finding[1])
