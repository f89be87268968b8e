"""Operators that meet sizes again are not lowered again, though the graph as a whole has never met them.

Of pictures of any height and width hardly any comes twice; behind a few strides few sizes are left. What a rule makes
follows from what it asked: where every answer is as it was, so is what is made, but for the memory it is in.

There are thousands of recipes, and the collector of garbage looks at each of their parts. So they are written as bytes.
"""

from __future__ import annotations

import marshal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engine.compiler.codegen.host import Host
from engine.compiler.kernels.ready import Ready
from engine.compiler.lowering.asking import Question
from engine.compiler.lowering.choosing import Code, Wanted
from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.steps import KernelStep, Made, Pointer
from engine.compiler.places import Home
from engine.compiler.storage import Storage, View, dtype_of, storage_with
from engine.graph.operator import RuntimeOperator
from engine.recurring import Recurring
from engine.tensor import Array, TensorSpec

# Of a graph: 1.5 KB each.
MOST_KEPT: Final = 12_000
# What was met once; what is met a second time is kept.
MOST_MET: Final = 24_000
# Of a lowering: to write one down takes a quarter of what it saves the next time.
MOST_WRITTEN: Final = 12
# Of an operator one after the other that were of no use: what it asks is never answered twice in the same way.
MOST_IN_VAIN: Final = 8
# Things that recipes speak of and that are no numbers.
MOST_HELD: Final = 100_000
# Of what is written: without references, so that equal things are equal bytes.
_MARSHAL: Final = 2

Numbers = dict[Storage, int]
"""Memory by the order in which it was first spoken of."""
Form = tuple[Any, ...]
"""Something in numbers and texts."""


@dataclass(frozen=True, slots=True)
class _Recipe:
    """What a rule made, and the answers it made it of.

    Args:
        answers: in the order of the questions.
        text: memory that was made, views of results, steps, and what joined.
        outside: memory that stays where it is, weights; spoken of by numbers below 0.
        code: of the kernels of all steps.
        until: the code with which another would be made, that is better; None where this is the best.
    """

    questions: tuple[Question, ...]
    answers: bytes
    text: bytes
    outside: tuple[Storage, ...]
    code: tuple[bytes, ...]
    until: Wanted | None

    def again(self, lowering: Lowering) -> Made | None:
        """What the rule would make now; None where something is answered in another way."""
        numbers = {lowering.alarm.storage: 0}
        try:
            if _bytes([_form(each.asked_of(lowering), numbers) for each in self.questions]) != self.answers:
                return None
        except _NotWrittenError:
            return None
        pieces, views, steps, fusions = marshal.loads(self.text)
        storages = [*numbers, *map(storage_with, pieces), *reversed(self.outside)]
        return Made(
            views={name: _view(form, storages) for name, form in views},
            steps=[_step(form, code, lowering.host, storages) for form, code in zip(steps, self.code, strict=True)],
            fusions=fusions,
        )


class Recipes:
    """What rules made of the operators of a graph, by what they were given; what was not used for longest goes."""

    def __init__(self) -> None:
        self._kept: Recurring[object, _Recipe] = Recurring(MOST_KEPT, MOST_MET)
        self._held: dict[object, Any] = {}
        self._in_vain: Counter[str] = Counter()
        self._of: object = None
        self._left = 0
        self._others: Mapping[str, Wanted] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def settle(self, known: object, code: Code, others: Mapping[str, Wanted]) -> None:
        """Make ready for a lowering.

        Args:
            known: all that what is made depends on, beside the answers to questions; with another everything is
                forgotten.
            code: what there is.
            others: operators for which another kernel than the best is taken, for want of code, which is that; filled
                on the way.
        """
        self._code, self._others, self._left = code, others, MOST_WRITTEN
        if known != self._of or len(self._held) > MOST_HELD:
            self._kept.clear()
            self._held.clear()
            self._in_vain.clear()
            self._of = known

    def made(self, lowering: Lowering, op: RuntimeOperator, make: Callable[[], Made]) -> Made:
        """What an operator's rule makes: as it was made before, if all it would ask is answered as it was then."""
        if self._in_vain[op.name] >= MOST_IN_VAIN:
            return make()
        key = op.name, *[_shape(lowering.values.get(each.name)) for each in op.inputs]
        recipe = self._kept.find(key)
        if recipe is not None and (recipe.until is None or not self._code.has(recipe.until)):
            found = recipe.again(lowering)
            self._in_vain[op.name] = 0 if found is not None else self._in_vain[op.name] + 1
            if found is not None:
                return found
        # Behind a cut it is kept with all that follow.
        if lowering.cuts or not self._kept.comes_again(key) or not self._left:
            return make()
        self._left -= 1
        notes: list[tuple[Question, object]] = []
        lowering.notes = notes
        try:
            made = make()
        finally:
            lowering.notes = None
        self._keep(key, lowering, notes, made, self._others.get(op.name))
        return made

    def _keep(
        self,
        key: object,
        lowering: Lowering,
        notes: Sequence[tuple[Question, object]],
        made: Made,
        until: Wanted | None,
    ) -> None:
        """Write down how something was made, unless there is more to it than memory and kernels that have code."""
        numbers = {lowering.alarm.storage: 0}
        asked: dict[object, tuple[Question, Form]] = {}
        for question, answer in notes:
            before = len(numbers)
            form = _form(answer, numbers)
            self._hold(answer)
            again = before if len(numbers) > before else None  # who asks twice for memory gets two pieces
            asked[question.key, again] = self._held.setdefault(question.key, question), form
        try:
            answers = _bytes([form for _, form in asked.values()])
            text, outside, code = _written(made, numbers, self._code)
        except _NotWrittenError:
            return
        questions = self._shared([question for question, _ in asked.values()])
        self._kept.keep(key, _Recipe(questions, answers, text, self._shared(outside), code, until))

    def _shared(self, things: Sequence[Any]) -> tuple[Any, ...]:
        """The same, once for all recipes that have them."""
        shared: tuple[Any, ...] = self._held.setdefault((*map(id, things),), tuple(things))
        return shared

    def _hold(self, answer: object) -> None:
        """As long as something is spoken of, nothing else may have its number."""
        if isinstance(answer, tuple | list):
            for each in answer:
                self._hold(each)
        elif not isinstance(answer, View | TensorSpec | bool | int | float | str | None):
            self._held[id(answer)] = answer


class _NotWrittenError(Exception):
    """Something is made of more than memory and kernels."""


def _shape(value: object) -> object:
    return value.shape if isinstance(value, TensorSpec) else None


def _written(made: Made, numbers: Numbers, there_is: Code) -> tuple[bytes, Sequence[Storage], tuple[bytes, ...]]:
    """Text, memory that stays where it is, and code, as a recipe has them."""
    pieces: list[Form] = []
    outside: list[Storage] = []

    def number(storage: Storage) -> int:
        if storage in numbers:
            return numbers[storage]
        if storage.home is Home.WEIGHT:
            if storage not in outside:
                outside.append(storage)
            return -1 - outside.index(storage)
        if storage.data is not None:
            raise _NotWrittenError
        pieces.append(storage.traits)
        return numbers.setdefault(storage, len(numbers))

    views = []
    for name, view in made.views.items():
        if number(view.storage) < 0 or not view.phantom.size:
            raise _NotWrittenError
        views.append((name, _form_of_view(view, numbers)))
    steps, code = [], []
    for step in made.steps:
        ready = there_is.ready(step) if isinstance(step, KernelStep) else None
        if ready is None or not isinstance(step, KernelStep):
            raise _NotWrittenError
        pointers = [(number(each.storage), each.offset) for each in step.pointers]
        steps.append((ready.told, pointers, step.operators, step.bytes))
        code.append(ready.code)
    text = _bytes((pieces, views, steps, {name: list(joined) for name, joined in made.fusions.items()}))
    return text, outside, tuple(code)


def _bytes(form: Any) -> bytes:
    try:
        return marshal.dumps(form, _MARSHAL)
    except ValueError:  # something is neither a number nor a text of Python
        raise _NotWrittenError from None


def _step(form: Form, code: bytes, host: Host, storages: Sequence[Storage]) -> KernelStep:
    told, pointers, operators, moved = form
    return KernelStep(
        kernel=Ready.of(told, code, host),
        pointers=tuple([Pointer(storages[number], offset) for number, offset in pointers]),
        operators=operators,
        bytes=moved,
    )


_VIEW, _SPEC, _MANY, _SAME = range(4)


def _form(answer: object, numbers: Numbers) -> Form:
    """All that a rule can see of an answer."""
    if isinstance(answer, View):
        return _VIEW, *_form_of_view(answer, numbers), answer.storage.traits
    if isinstance(answer, TensorSpec):
        return _SPEC, answer.shape, answer.dtype.num, None if answer.value is None else answer.value.tobytes()
    if isinstance(answer, tuple | list):
        return _MANY, isinstance(answer, list), *[_form(each, numbers) for each in answer]
    if answer is None or isinstance(answer, bool | int | float | str):
        return type(answer).__name__, answer
    return _SAME, id(answer)


def _form_of_view(view: View, numbers: Numbers) -> Form:
    return numbers.setdefault(view.storage, len(numbers)), *view.traits


def _view(form: Form, storages: Sequence[Storage]) -> View:
    number, shape, strides, dtype, offset, border = form
    storage = storages[number]
    phantom: Array = np.ndarray(shape, dtype_of(dtype), storage.phantom.view(np.uint8), offset, strides)
    return View(storage, phantom, border)
