"""What follows a waist of a graph is not lowered again where it was before, for a tensor of the same form.

That is done for all operators behind it at once; ``recipes.py`` does it for each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from engine.compiler.ending import Ending
from engine.compiler.lowering.choosing import Code, Wanted
from engine.compiler.lowering.cuts import Cut, Rest
from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.steps import ReferenceStep
from engine.compiler.places import Home
from engine.compiler.storage import View
from engine.graph.operand import RuntimeOperand
from engine.graph.waists import Behind, Narrowing


class Endings:
    """What was made behind the waists of a graph, by what was passed on there; what was not used for longest goes.

    Args:
        waists: by the number of the operator behind it, what is passed on.
    """

    def __init__(self, waists: Mapping[int, RuntimeOperand]) -> None:
        self._behind: Behind[Ending] = Behind(waists)
        self._of: object = None
        self._others: Mapping[str, Wanted] = {}
        self._narrowing = Narrowing()

    def __len__(self) -> int:
        return len(self._behind)

    def settle(self, known: object, code: Code, others: Mapping[str, Wanted]) -> None:
        """Make ready for a lowering; as ``Recipes.settle``."""
        self._code, self._others, self._narrowing = code, others, Narrowing()
        if known != self._of:
            self._behind.clear()
            self._of = known

    def reached(self, lowering: Lowering, number: int) -> bool:
        """Whether all is known that is made from an operator on, and the lowering has it.

        Where it is worth knowing the next time, the lowering is cut there, and what was before is forgotten: then
        nothing that follows can depend on it.
        """
        operand = self._behind.waist(number)
        view = None if operand is None else self._passed(lowering, number, operand)
        if operand is None or view is None:
            return False
        key = view.traits, view.storage.traits
        found = self._behind.find(number, key)
        if found is not None and not any(map(self._code.has, found.until)):
            lowering.rest = Rest(view, found)
            return True
        if self._behind.comes_again(number, key):
            fusions = {name: len(joined) for name, joined in lowering.fusions.items()}
            lowering.cuts.append(Cut(key, number, view, len(lowering.steps), lowering.views, fusions))
            lowering.forget_before(number, operand)
        return False

    def keep(self, cut: Cut, ending: Ending | None) -> None:
        """This follows a waist; None for what no other program can have, then or ever."""
        if ending is None:
            self._behind.give_up(cut.number)
        else:
            self._behind.keep(cut.number, cut.key, ending)

    def wanted_for(self, operators: Collection[str]) -> Sequence[Wanted]:
        """Code with which other kernels would be taken for these operators, that are better."""
        return [wanted for name, wanted in self._others.items() if name in operators]

    def _passed(self, lowering: Lowering, number: int, operand: RuntimeOperand) -> View | None:
        """Where the tensor lies that is passed on, which decides what follows; None where it is not looked at."""
        view, spec = lowering.views.get(operand.name), lowering.spec(operand)
        if view is None or spec is None or spec.value is not None or view.storage.home is not Home.ARENA:
            return None
        is_worth = self._narrowing.is_worth(spec.shape) and _is_all_before(lowering, number)
        return view if is_worth else None


def _is_all_before(lowering: Lowering, number: int) -> bool:
    """Whether all that was done so far was done to operators before this one, by kernels."""
    if lowering.placement.is_apart or any(isinstance(each, ReferenceStep) for each in lowering.steps):
        return False
    return all(op.name not in lowering.absorbed for op in lowering.operators[number:])
