"""Branches and loops that run subgraphs.

A subgraph takes first the operator's values (a count, a condition, states, slices), then the captured values of the
outer graph, which are the last operands here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from engine.cancellation import check_cancelled
from engine.errors import EngineError, ShapeError
from engine.layers.control.subgraphs import WithSubgraphs
from engine.layers.definition.known import MAX_ELEMENTS
from engine.layers.definition.registry import register
from engine.layers.onnx.operands.constants import needed, whole_number
from engine.layers.operands.axes import checked_axis
from engine.layers.operands.precision import INT64
from engine.limits import MAX_STEPS, LoopBytes, check_size
from engine.tensor import UNKNOWN, Array, TensorSpec, is_known, known_value, spec_of

_NO_LIMIT: Final = 2**63 - 1
_TRUE: Final = np.array(True)
_TRUE.flags.writeable = False


class Stacking(WithSubgraphs):
    """Base of loops: states pass from iteration to iteration, other results are stacked.

    Parameters:
        states: number of values passed from iteration to iteration.
    """

    states: int

    def first(self, operands: Sequence[Any]) -> list[Any]:
        """Return the specs of the first iteration's inputs.

        Args:
            operands: the operator's operands, or their specs.
        """
        raise NotImplementedError

    def stacking(self, index: int) -> tuple[int, bool]:
        """Return the axis along which a result is stacked, and whether the order is reversed."""
        return 0, False

    def items(self, operands: Sequence[Any]) -> list[Any]:
        """Return the specs of the stacked results of the first iteration."""
        count = self.count - self.states
        try:
            results = list(self.subgraph("body").infer(self.first(operands)))
        except EngineError:  # the subgraph refuses an iteration that may never run
            return [UNKNOWN] * count
        return results[len(results) - count :]

    def nothing(self, operands: Sequence[Any]) -> list[Array]:
        """Return the stacked results of zero iterations: the shape of an item, with a 0 at the stacking axis.

        A size that depends on values is 0 as well.
        """
        notes = self.annotations.outputs[self.states :]
        return [
            _empty(item, self.stacking(k)[0], note)
            for k, (item, note) in enumerate(zip(self.items(operands), notes, strict=True))
        ]


@register("onnx.If")
class If(WithSubgraphs):
    """Branch: one of two subgraphs, chosen by a condition.

    The core has no branches, because PNNX files have none.

    Parameters:
        then_branch_refused, else_branch_refused: error of a subgraph that does not fit this graph's shapes.
    """

    then_branch_refused: str = ""
    else_branch_refused: str = ""

    def infer(self, condition: Any, *captured: Any) -> Any:
        known = known_value(condition)
        if is_known(known):
            return self.results(self.branch(known).infer(self.captured(known, captured)))
        found = [each for value in (True, False) if (each := self._branch_specs(value, captured)) is not None]
        if not found:
            return UNKNOWN if self.count == 1 else (UNKNOWN,) * self.count
        return self.results([common_spec(a, b) for a, b in zip(found[0], found[-1], strict=False)])

    def _branch_specs(self, value: bool, captured: Sequence[Any]) -> Sequence[Any] | None:
        """Return the specs of a branch's results; None if it refuses these operands, an error only if it is taken."""
        try:
            known: Sequence[Any] = self.branch(value).infer(self.captured(value, captured))
        except ShapeError:
            return None
        return known

    def forward(self, condition: Any, *captured: Any) -> Any:
        return self.results(self.branch(condition).run(self.captured(condition, captured)))

    def subgraph_inputs(self, operands: Sequence[Any]) -> list[tuple[Any, Sequence[Any]]]:
        known = [_blurred(each) for each in operands[1:]]
        names = [name for name, _ in self.annotations.subgraphs]
        return [(self.subgraph(name), self.captured(name == "then_branch", known)) for name in names]

    def branch(self, condition: Any) -> Any:
        """Return the subgraph that a condition chooses.

        Raises:
            ShapeError: it does not fit this graph's shapes, or the condition is not a single value.
        """
        return self.subgraph(_branch(condition))

    def subgraph(self, name: str) -> Any:
        refused = self.then_branch_refused if name == "then_branch" else self.else_branch_refused
        if refused:
            raise ShapeError(f"the {name} does not fit: {refused}")
        return super().subgraph(name)

    def captured(self, condition: Any, captured: Sequence[Any]) -> Sequence[Any]:
        """Return the captured values of a branch; those of ``then_branch`` come first."""
        subgraphs = dict(self.annotations.subgraphs)
        first = subgraphs["then_branch"].count if "then_branch" in subgraphs else 0
        return captured[:first] if _holds(condition) else captured[first:]


def _branch(condition: Any) -> str:
    return "then_branch" if _holds(condition) else "else_branch"


@register("onnx.Loop")
class Loop(Stacking):
    """Loop over a subgraph up to a trip count or until its condition fails; results that are no states are stacked.

    The core has no loops, because PNNX files have none.

    Parameters:
        states: number of values passed from iteration to iteration.
    """

    has_count: bool = True
    has_condition: bool = True

    def infer(self, *operands: Any) -> Any:
        states, captured = self.parts(operands)[2:]
        found = self._settled(states, captured)
        if found is None:
            return UNKNOWN if self.count == 1 else (UNKNOWN,) * self.count
        after, others = found
        stacked = [TensorSpec((None, *each.shape), each.dtype) if isinstance(each, TensorSpec) else UNKNOWN
                   for each in others]  # fmt: skip
        return self.results([*after, *stacked])

    def subgraph_inputs(self, operands: Sequence[Any]) -> list[tuple[Any, Sequence[Any]]]:
        states, captured = self.parts(operands)[2:]
        found = self._settled(states, captured)
        turn = [TensorSpec((), INT64), TensorSpec((), np.dtype(np.bool_))]
        return [] if found is None else [(self.subgraph("body"), [*turn, *found[0], *map(_blurred, captured)])]

    def _settled(self, states: Sequence[Any], captured: Sequence[Any]) -> tuple[list[Any], list[Any]] | None:
        """Return specs of the states valid for every iteration, and of the stacked items; None if none exist."""
        known = [_blurred(each) for each in states]
        for _ in range(4):
            given = [TensorSpec((), INT64), TensorSpec((), np.dtype(np.bool_)), *known, *captured]
            _, *results = self.subgraph("body").infer(given)
            if len(results) < self.states:
                raise ShapeError("the subgraph has too few results", found=len(results), expected=self.states)
            after = [common_spec(a, _blurred(b)) for a, b in zip(known, results, strict=False)]
            if after == known:
                return after, results[self.states :]
            known = after
        return None

    def forward(self, *operands: Any) -> Any:
        count, condition, states, captured = self.parts(operands)
        most = _NO_LIMIT if count is None else needed(whole_number(count, "the number of turns"), "count")
        goes_on, turn, body = condition is None or _holds(condition), 0, self.subgraph("body")
        stacks: list[list[Any]] = [[] for _ in range(self.count - self.states)]
        states, held, grown = list(states), LoopBytes(), [0] * self.states
        while goes_on and turn < most:
            _check_turn(turn)
            still, *results = body.run([np.array(turn, INT64), _TRUE, *states, *captured])
            states, given = results[: self.states], results[self.states :]
            for stack, value in zip(stacks, given, strict=True):
                stack.append(value)
                held.add(np.asarray(value).nbytes)
            _check_sequences(states, grown)
            goes_on, turn = _holds(still), turn + 1
        if not turn:
            return self.results([*states, *self.nothing(operands)])
        return self.results([*states, *map(_stacked, stacks)])

    def first(self, operands: Sequence[Any]) -> list[Any]:
        states, captured = self.parts(operands)[2:]
        return [_known(each) for each in (np.array(0, INT64), _TRUE, *states, *captured)]

    def parts(self, operands: Sequence[Any]) -> tuple[Any, Any, Sequence[Any], Sequence[Any]]:
        """Return trip count and condition (None if absent), states and captured values."""
        rest = list(operands)
        count = rest.pop(0) if self.has_count else None
        condition = rest.pop(0) if self.has_condition else None
        return count, condition, rest[: self.states], rest[self.states :]


@register("onnx.Scan")
class Scan(Stacking):
    """Scan of a subgraph over slices of inputs; states pass between iterations, other results are stacked.

    The core has no loops, because PNNX files have none.

    Parameters:
        states: number of values passed from iteration to iteration.
        inputs: number of operands that are sliced.
        input_axes, output_axes: axes of slicing and stacking; the first ones by default.
        input_directions, output_directions: 1 for backwards.
    """

    inputs: int
    input_axes: tuple[int, ...] = ()
    output_axes: tuple[int, ...] = ()
    input_directions: tuple[int, ...] = ()
    output_directions: tuple[int, ...] = ()

    def infer(self, *operands: Any) -> Any:
        states, scanned, captured = self.parts(operands)
        if not all(isinstance(each, TensorSpec) for each in scanned):
            return UNKNOWN if self.count == 1 else (UNKNOWN,) * self.count
        axes = self.axes(self.input_axes, scanned)
        lengths = [each.shape[axis] for each, axis in zip(scanned, axes, strict=True)]
        slices = self.slices(scanned, axes)
        known = [_blurred(each) for each in states]
        results = self.subgraph("body").infer([*known, *slices, *captured])
        after = [common_spec(a, _blurred(b)) for a, b in zip(known, results[: self.states], strict=True)]
        length = next((each for each in lengths if each is not None), None)
        return self.results(
            [*after, *(self._stacked_spec(k, each, length) for k, each in enumerate(results[self.states :]))]
        )

    def subgraph_inputs(self, operands: Sequence[Any]) -> list[tuple[Any, Sequence[Any]]]:
        states, scanned, captured = self.parts(operands)
        if not all(isinstance(each, TensorSpec) for each in scanned):
            return []
        slices = self.slices(scanned, self.axes(self.input_axes, scanned))
        return [(self.subgraph("body"), [*map(_blurred, states), *slices, *map(_blurred, captured)])]

    def slices(self, scanned: Sequence[Any], axes: Sequence[int]) -> list[TensorSpec]:
        """Return the specs of the slices of one iteration."""
        return [TensorSpec((*each.shape[:axis], *each.shape[axis + 1 :]), each.dtype)
                for each, axis in zip(scanned, axes, strict=True)]  # fmt: skip

    def _stacked_spec(self, index: int, item: Any, length: int | None) -> Any:
        if not isinstance(item, TensorSpec):
            return UNKNOWN
        axis = checked_axis(_at(self.output_axes, index), item.rank + 1)
        return TensorSpec((*item.shape[:axis], length, *item.shape[axis:]), item.dtype)

    def forward(self, *operands: Any) -> Any:
        states, scanned, captured = self.parts(operands)
        axes = self.axes(self.input_axes, scanned)
        lengths = {each.shape[axis] for each, axis in zip(scanned, axes, strict=True)}
        if len(lengths) != 1:
            raise ShapeError("inputs to scan differ in length", found=sorted(lengths), expected="one length")
        (length,) = lengths
        stacks: list[list[Any]] = [[] for _ in range(self.count - self.states)]
        held = LoopBytes()
        for turn in range(length):
            _check_turn(turn)
            places = [self.place(k, turn, length) for k in range(len(scanned))]
            slices = [each.take(place, axis) for each, place, axis in zip(scanned, places, axes, strict=True)]
            results = self.subgraph("body").run([*states, *slices, *captured])
            states = results[: self.states]
            for stack, value in zip(stacks, results[self.states :], strict=True):
                stack.append(value)
                held.add(np.asarray(value).nbytes)
        if not length:
            return self.results([*states, *self.nothing(operands)])
        return self.results([*states, *(_stacked(stack, *self.stacking(k)) for k, stack in enumerate(stacks))])

    def first(self, operands: Sequence[Any]) -> list[Any]:
        states, scanned, captured = self.parts(operands)
        slices = self.slices(scanned, self.axes(self.input_axes, scanned))
        return [*map(_known, states), *slices, *map(_known, captured)]

    def place(self, index: int, turn: int, length: int) -> int:
        """Return the index of the slice that an iteration takes of an input."""
        return length - 1 - turn if _at(self.input_directions, index) else turn

    def stacking(self, index: int) -> tuple[int, bool]:
        return _at(self.output_axes, index), bool(_at(self.output_directions, index))

    def axes(self, given: tuple[int, ...], values: Sequence[Any]) -> list[int]:
        """Return the axis of each value, counted from 0."""
        return [checked_axis(_at(given, k), len(each.shape)) for k, each in enumerate(values)]

    def parts(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Return states, sliced inputs and captured values."""
        end = self.states + self.inputs
        return list(operands[: self.states]), list(operands[self.states : end]), list(operands[end:])


@register("onnx.SequenceMap")
class SequenceMap(WithSubgraphs):
    """Map of a subgraph over the items of a sequence; its results are sequences.

    The core has no loops, because PNNX files have none.

    Parameters:
        inputs: number of operands before the captured ones: the sequence, then further sequences, or values passed
            unchanged to each iteration.
    """

    inputs: int

    def forward(self, *operands: Any) -> Any:
        (sequence, *others), captured = operands[: self.inputs], operands[self.inputs :]
        if not isinstance(sequence, (list, tuple)):
            raise ShapeError("not a sequence", found=type(sequence).__name__)
        columns: list[list[Any]] = [[] for _ in range(self.count)]
        held = LoopBytes()
        for turn, item in enumerate(sequence):
            _check_turn(turn)
            given = [each[turn] if isinstance(each, (list, tuple)) else each for each in others]
            for column, value in zip(columns, self.subgraph("body").run([item, *given, *captured]), strict=True):
                column.append(value)
                held.add(np.asarray(value).nbytes)
        return self.results(columns)


def _known(value: Any) -> Any:
    return spec_of(value, with_value=isinstance(value, np.ndarray) and value.size <= MAX_ELEMENTS)


def _empty(item: Any, axis: int, note: TensorSpec | None) -> Array:
    """Return a stack of no items, with the annotated shape if the item's is unknown."""
    if isinstance(item, TensorSpec):
        place = checked_axis(axis, item.rank + 1)
        return np.zeros([size or 0 for size in (*item.shape[:place], 0, *item.shape[place:])], item.dtype)
    if note is None:
        return np.zeros(0, np.float32)
    place = checked_axis(axis, note.rank)
    return np.zeros([0 if k == place else size or 0 for k, size in enumerate(note.shape)], note.dtype)


def _stacked(stack: list[Any], axis: int = 0, is_backwards: bool = False) -> Array:
    first = np.asarray(stack[0])
    check_size((len(stack), *first.shape), first.dtype)
    return np.stack(stack[::-1] if is_backwards else stack, checked_axis(axis, first.ndim + 1))


def _at(given: tuple[int, ...], index: int) -> int:
    return given[index] if index < len(given) else 0


def _check_turn(turn: int) -> None:
    check_cancelled()
    if turn >= MAX_STEPS:
        raise ShapeError("too many turns", found="more", expected=f"at most {MAX_STEPS:,}")


def _check_sequences(states: Sequence[Any], grown: list[int]) -> None:
    """Check the total size of sequences each time that one has doubled.

    Args:
        grown: number of items of each at its last check; updated.
    """
    for k, state in enumerate(states):
        if isinstance(state, (list, tuple)) and len(state) > 2 * grown[k] + 16:
            grown[k] = len(state)
            arrays = {id(each): each for each in state if isinstance(each, np.ndarray)}
            check_size((sum(each.nbytes for each in arrays.values()),), np.dtype(np.uint8), "a sequence")


def _holds(condition: Any) -> bool:
    found = np.asarray(condition)
    if found.size != 1:
        raise ShapeError("a condition is not one value", found=list(found.shape))
    return bool(found.reshape(())[()])


def _blurred(value: Any) -> Any:
    """Return the spec of a value without its elements."""
    if isinstance(value, TensorSpec):
        return TensorSpec(value.shape, value.dtype)
    return TensorSpec((), np.asarray(value.__class__()).dtype) if isinstance(value, (bool, int, float)) else UNKNOWN


def common_spec(a: Any, b: Any) -> Any:
    """Return the common spec of two values: sizes that differ become unknown."""
    if not isinstance(a, TensorSpec) or not isinstance(b, TensorSpec) or (a.rank, a.dtype) != (b.rank, b.dtype):
        return UNKNOWN
    return TensorSpec(tuple(m if m == n else None for m, n in zip(a.shape, b.shape, strict=True)), a.dtype)
