"""Parts of an expression that read stored tensors only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine.errors import EngineError
from engine.expression import Call, Input, Node, evaluate, infer, inputs, peak_bytes, postorder
from engine.graph import RuntimeOperator
from engine.layers.creation.container import Expression
from engine.passes.support.budget import SCRATCH, Budget, work_of_calls
from engine.passes.support.rewriting import Rewriter
from engine.passes.support.storage import bytes_of, is_small_enough, tensor
from engine.passes.support.trees import reading, replaced
from engine.pnnx import Operator
from engine.tensor import CODES, Array, TensorSpec


def folded_subtrees(
    op: RuntimeOperator, layer: Expression, values: Mapping[int, object], rewriter: Rewriter, budget: Budget
) -> Operator:
    """The expression with the calls computed that read nothing but constants; itself where there are none.

    Args:
        values: index of an input -> its value, for those that are the same in every run.
        rewriter: takes the new operators.
        budget: of the constants of the graph.
    """
    new: list[Operator] = []
    others: dict[Node, Node] = {}
    operands = [values.get(index) for index in range(max(values, default=-1) + 1)]
    for call in _constant_calls(layer.tree, values):
        value = _value(call, operands, budget)
        if value is not None:
            name = rewriter.fresh(f"pnnx_fold_{op.name}")
            rewriter.annotate(name, TensorSpec(value.shape, value.dtype))
            others[call] = Input(len(op.inputs) + len(new))
            new.append(tensor(name, value))
    if not new:
        return op.source
    names = (*op.source.inputs, *(each.name for each in new))
    shorter = reading(op.source, replaced(layer.tree, others), names)
    rewriter.replace(op, *new, shorter)
    return shorter


def _constant_calls(root: Node, values: Mapping[int, object]) -> list[Node]:
    """The calls below the root that read constants only and are part of none that does."""
    found: dict[Node, None] = {}
    reads, is_constant = dict[Node, bool](), dict[Node, bool]()
    for node in postorder(root):
        reads[node] = isinstance(node, Input) or any(reads[child] for child in node.children)
        below = all(is_constant[child] for child in node.children)
        is_constant[node] = node.index in values if isinstance(node, Input) else below
    pending = list(root.children)
    while pending:
        node = pending.pop()
        if isinstance(node, Call) and reads[node] and is_constant[node]:
            found[node] = None
        else:
            pending.extend(node.children)
    return list(found)


def _value(call: Node, operands: Sequence[object], budget: Budget) -> Array | None:
    """The value of a call if it is a tensor that can be stored, and does not cost too much."""
    made_from = bytes_of([operands[index] for index in inputs(call)])
    try:
        made = bytes_of(infer(call, operands))
        if not is_small_enough(made, made_from) or peak_bytes(call, operands) > SCRATCH + made:
            return None
        if not budget.spend(work_of_calls(call, made_from + made), made):
            return None
        value = evaluate(call, operands)
    except EngineError:  # the run will say so
        return None
    return value if isinstance(value, np.ndarray) and value.dtype in CODES else None
