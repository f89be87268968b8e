"""The operands and results of recurrent networks beside their input: initial states, sequences, final states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import NotLoweredError, computable
from engine.compiler.lowering.rules.recurrent.kernels import part_of
from engine.compiler.lowering.steps import KernelStep, Made
from engine.compiler.storage import View, constant, row_major
from engine.graph.operand import RuntimeOperand
from engine.ir.strided import Strided

Arranged = Callable[[Strided], Strided]
"""Shows states as (layers * directions, batch, width)."""


def initial_state(
    context: Context, index: int | None, count: int, batch: int, width: int, arranged: Arranged
) -> tuple[View, Sequence[KernelStep]]:
    """Initial states as (count, batch, width), side by side in each row, and the copy this may take.

    Args:
        index: of the argument; None where it is left out, for zeros.
    """
    if index is None or context.argument(index) is None:
        zeros = constant(np.zeros(width, context.dtype))
        return part_of(zeros, zeros.phantom.broadcast_to((count, batch, width))), ()
    given = context.tensor(index)
    rows, copies = context.rows(given)
    return part_of(rows, arranged(rows.phantom.reshape(given.shape))), copies


@dataclass(frozen=True, slots=True)
class Results:
    """The results by their names: memory of each, and what copies it to where it shall lie.

    Args:
        memory: that kernels write, the last dimension contiguous.
        operands, views: which operand a result is, and where it is in the end.
    """

    memory: Mapping[str, View]
    operands: Mapping[str, RuntimeOperand]
    views: Mapping[str, View]

    @classmethod
    def placed(cls, context: Context, names: Sequence[str]) -> Results:
        """Memory for the operator's outputs, which are these."""
        if len(names) != len(context.op.outputs):
            raise NotLoweredError("its outputs are not known")
        operands = dict(zip(names, context.op.outputs, strict=True))
        for operand in operands.values():
            computable(context.lowering.spec(operand), context.dtype)
        views = {name: context.lowering.place(each, False) for name, each in operands.items()}
        memory = {
            name: view if _is_in_rows(view) else row_major(view.shape, context.dtype) for name, view in views.items()
        }
        return cls(memory, operands, views)

    def view(self, name: str) -> View | None:
        """Where kernels write a result; None where nobody wants it."""
        return self.memory.get(name)

    def made(self, context: Context, steps: Sequence[KernelStep]) -> Made:
        """What these steps make: all results."""
        copies = [
            context.copy(self.memory[name], view) for name, view in self.views.items() if self.memory[name] is not view
        ]
        views = {operand.name: self.views[name] for name, operand in self.operands.items()}
        return Made(views=views, steps=[*steps, *copies])


def _is_in_rows(view: View) -> bool:
    return view.shape[-1] == 1 or view.strides[-1] == 1
