"""What follows a waist of a graph is not lowered again where it was before, for a tensor of the same form.

That is done for all operators behind it at once; ``recipes.py`` does it for each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from engine.compiler.blueprint import Home
from engine.compiler.ending import Ending
from engine.compiler.lowering.choosing import Code, Wanted
from engine.compiler.lowering.cuts import Cut
from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.steps import ReferenceStep
from engine.compiler.storage import View, number_of
from engine.graph.operand import RuntimeOperand
from engine.graph.waists import Narrowing
from engine.recurring import Recurring

# Of a waist: some 3 KB each. Where few sizes are left they are seldom asked for, and must not go for those of many.
MOST_KEPT: Final = 1_500
# What was met once; what is met a second time is kept.
MOST_MET: Final = 10_000


class Endings:
    """What was made behind the waists of a graph, by what was passed on there; what was not used for longest goes.

    Args:
        waists: by the number of the operator behind it, what is passed on.
    """

    def __init__(self, waists: Mapping[int, RuntimeOperand]) -> None:
        self._waists = dict(waists)
        self._kept: dict[int, Recurring[object, Ending]] = {
            number: Recurring(MOST_KEPT, MOST_MET, is_eager=True) for number in waists
        }
        self._of: object = None
        self._others: Mapping[str, Wanted] = {}
        self._narrowing = Narrowing()

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def settle(self, known: object, code: Code, others: Mapping[str, Wanted]) -> None:
        """Make ready for a lowering; as ``Recipes.settle``."""
        self._code, self._others, self._narrowing = code, others, Narrowing()
        if known != self._of:
            for each in self._kept.values():
                each.clear()
            self._of = known

    def reached(self, lowering: Lowering, number: int) -> bool:
        """Whether all is known that is made from an operator on, and the lowering has it.

        Where it is worth knowing the next time, the lowering is cut there, and what was before is forgotten: then
        nothing that follows can depend on it.
        """
        key = self._key(lowering, number)
        if key is None:
            return False
        found, view = self._kept[number].find(key), lowering.views[self._waists[number].name]
        if found is not None and not any(map(self._code.has, found.until)):
            lowering.passed, lowering.ending, lowering.rest = view, found, found.pieces
            return True
        if self._kept[number].comes_again(key):
            fusions = {name: len(joined) for name, joined in lowering.fusions.items()}
            lowering.cuts.append(Cut(key, number, view, len(lowering.steps), lowering.views, fusions))
            lowering.forget_before(number, self._waists[number])
        return False

    def keep(self, cut: Cut, ending: Ending | None) -> None:
        """This follows a waist; None for what no other program can have, then or ever."""
        if ending is None:
            self._waists.pop(cut.number, None)
        else:
            self._kept[cut.number].keep(cut.key, ending)

    def wanted_for(self, operators: Collection[str]) -> Sequence[Wanted]:
        """Code with which other kernels would be taken for these operators, that are better."""
        return [wanted for name, wanted in self._others.items() if name in operators]

    def _key(self, lowering: Lowering, number: int) -> object | None:
        """All that decides what follows an operator; None where it is not looked at."""
        operand = self._waists.get(number)
        view = None if operand is None else lowering.views.get(operand.name)
        spec = None if operand is None else lowering.spec(operand)
        if view is None or spec is None or spec.value is not None or view.storage.home is not Home.ARENA:
            return None
        if not self._narrowing.is_worth(spec.shape) or not _is_all_before(lowering, number):
            return None
        return _form(view)


def _is_all_before(lowering: Lowering, number: int) -> bool:
    """Whether all that was done so far was done to operators before this one, by kernels."""
    if lowering.placement.is_apart or any(isinstance(each, ReferenceStep) for each in lowering.steps):
        return False
    return all(op.name not in lowering.absorbed for op in lowering.operators[number:])


def _form(view: View) -> object:
    phantom = view.phantom
    own = phantom.shape, phantom.strides, number_of(phantom.dtype), view.offset, view.border
    return own, view.storage.traits
