"""Edits of a graph: each function makes a new graph from an old one.

Operators and operands are named as in the file. A function raises GraphError if an operand would be left without a
maker or with two; the next build checks that the operators of the result fit each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace as with_fields
from typing import Literal

from engine.errors import GraphError
from engine.pnnx import Graph, Operator
from engine.tensor import TensorSpec


def insert_before(graph: Graph, target: str, new: Operator, index: int = 0) -> Graph:
    """Put an operator into the edge that enters ``target`` at input ``index``.

    ``new`` takes that operand as its first input, whatever its inputs say, and ``target`` takes its first output.

    Raises:
        GraphError: unknown operator or input, or ``new`` repeats a name or an operand.
    """
    position, op = _with(graph, target, "input", index)
    inputs = _replaced(op.inputs, index, _first_output(new))
    return _with_others(graph, position, _fed(new, op.inputs[index]), with_fields(op, inputs=inputs))


def insert_after(graph: Graph, target: str, new: Operator, index: int = 0) -> Graph:
    """Put an operator between output ``index`` of ``target`` and all its consumers.

    Raises:
        GraphError: unknown operator or output, or ``new`` repeats a name or an operand.
    """
    position, op = _with(graph, target, "output", index)
    made, result = op.outputs[index], _first_output(new)
    rest = [_renamed_inputs(each, {made: result}) for each in graph.operators]
    return _checked(graph, [*rest[: position + 1], _fed(new, made), *rest[position + 1 :]])


def remove(graph: Graph, target: str) -> Graph:
    """Take an operator out; consumers of its output get its first input instead.

    An operator without consumers is simply dropped.

    Raises:
        GraphError: unknown operator, it has no input to stand in for its output, or several outputs in use.
    """
    op = graph.operators[_find(graph, target)]
    if op.type in ("pnnx.Input", "pnnx.Output"):
        raise GraphError("inputs and outputs of the graph cannot be removed or replaced", where=target)
    used = [name for name in op.outputs if any(name in each.inputs for each in graph.operators)]
    if len(used) > 1 or (used and not op.inputs):
        found = f"{len(op.inputs)} inputs, {len(used)} outputs in use"
        raise GraphError("the operator's outputs cannot be replaced", where=target, found=found)
    substitute = dict.fromkeys(used, op.inputs[0])
    rest = [_renamed_inputs(each, substitute) for each in graph.operators if each.name != target]
    return _checked(graph, rest)


def replace(graph: Graph, target: str, new: Operator) -> Graph:
    """Put another operator in the place of ``target``, between the same operands.

    Raises:
        GraphError: unknown operator, or ``new`` takes or makes another number of operands.
    """
    position = _find(graph, target)
    op = graph.operators[position]
    if new.outputs and len(new.outputs) != len(op.outputs):
        found, expected = f"{len(new.outputs)} outputs", f"{len(op.outputs)}"
        raise GraphError("the new operator does not fit", where=target, found=found, expected=expected)
    inputs, labels = (new.inputs, new.labels) if new.inputs else (op.inputs, op.labels)
    fitted = with_fields(new, inputs=inputs, labels=labels, outputs=op.outputs)
    return _with_others(graph, position, fitted)


def outline(graph: Graph, targets: Collection[str], new: Operator) -> Graph:
    """Replace several operators by one that makes the operands of theirs that others use.

    Raises:
        GraphError: ``new`` repeats a name or an operand, or does not make one that is used.
    """
    return _checked(graph, [*(op for op in graph.operators if op.name not in targets), new])


def rewire(graph: Graph, target: str, index: int, operand: str) -> Graph:
    """Let input ``index`` of ``target`` come from another operand.

    Raises:
        GraphError: unknown operator, input or operand, or the operators would feed each other in a cycle.
    """
    position, op = _with(graph, target, "input", index)
    return _with_others(graph, position, with_fields(op, inputs=_replaced(op.inputs, index, operand)))


def rename(graph: Graph, old: str, new: str) -> Graph:
    """Give an operator, or else an operand, another name.

    Raises:
        GraphError: neither bears the old name, or the new one is taken or not a word.
    """
    if not new or any(character.isspace() for character in new):
        raise GraphError("a name must be one word", found=repr(new))
    if any(op.name == old for op in graph.operators):
        named = [with_fields(op, name=new, written="") if op.name == old else op for op in graph.operators]
        return _checked(graph, named)
    if not any(old in op.outputs for op in graph.operators):
        raise GraphError("unknown operator or operand", found=repr(old))
    operators = [
        with_fields(_renamed_inputs(op, {old: new}), outputs=tuple(new if name == old else name for name in op.outputs))
        for op in graph.operators
    ]
    annotations = {new if name == old else name: spec for name, spec in graph.annotations.items()}
    size_names = {new if name == old else name: names for name, names in graph.size_names.items()}
    return _checked(with_fields(graph, annotations=annotations, size_names=size_names), operators)


def extract(
    graph: Graph, inputs: Sequence[str], outputs: Sequence[str], specs: Mapping[str, TensorSpec] | None = None
) -> Graph:
    """Return the part of the graph that computes some operands from others, as a graph of its own.

    Args:
        inputs: operands that become the inputs ``pnnx_input_0``, ...
        outputs: operands that become the outputs ``pnnx_output_0``, ...
        specs: annotations for the new inputs where the file has none.

    Raises:
        GraphError: unknown operand, no outputs, or an output needs an input that is not among ``inputs``.
    """
    makers = {name: op for op in graph.operators for name in op.outputs}
    for name in (*inputs, *outputs):
        if name not in makers:
            raise GraphError("unknown operand", found=repr(name))
    if not outputs:
        raise GraphError("no output is requested")
    needed = _needed(makers, set(inputs), outputs)
    operators = [
        *(Operator("pnnx.Input", f"pnnx_input_{k}", (), (name,)) for k, name in enumerate(inputs)),
        *(_without_outputs(op, set(inputs)) for op in graph.operators if op.name in needed),
        *(Operator("pnnx.Output", f"pnnx_output_{k}", (name,), ()) for k, name in enumerate(outputs)),
    ]
    kept = {name for op in operators for name in op.outputs}
    annotations = {**(specs or {}), **graph.annotations}
    return _checked(
        with_fields(graph, annotations={name: spec for name, spec in annotations.items() if name in kept}), operators
    )


def _needed(makers: Mapping[str, Operator], given: Collection[str], outputs: Sequence[str]) -> set[str]:
    needed: set[str] = set()
    waiting = [name for name in outputs if name not in given]
    while waiting:
        op = makers[waiting.pop()]
        if op.name in needed:
            continue
        if op.type == "pnnx.Input":
            raise GraphError("an output depends on an input that is not given", found=op.outputs[0])
        needed.add(op.name)
        waiting.extend(name for name in op.inputs if name not in given and name in makers)
    return needed


def _without_outputs(op: Operator, taken: Collection[str]) -> Operator:
    """Return an operator with outputs that are given from outside renamed to unused names."""
    return with_fields(op, outputs=tuple(f"{name}_unused" if name in taken else name for name in op.outputs))


def _with(graph: Graph, target: str, what: Literal["input", "output"], index: int) -> tuple[int, Operator]:
    """Return the position of an operator that has such an input or output, and the operator."""
    position = _find(graph, target)
    op = graph.operators[position]
    count = len(op.inputs if what == "input" else op.outputs)
    if index not in range(count):
        raise GraphError(f"'{target}' has no {what} {index}", found=f"{count} {what}s")
    return position, op


def _with_others(graph: Graph, position: int, *operators: Operator) -> Graph:
    """Return the graph with one operator replaced by others."""
    return _checked(graph, [*graph.operators[:position], *operators, *graph.operators[position + 1 :]])


def _find(graph: Graph, name: str) -> int:
    for position, op in enumerate(graph.operators):
        if op.name == name:
            return position
    raise GraphError("unknown operator", found=repr(name))


def _first_output(op: Operator) -> str:
    if not op.outputs:
        raise GraphError("the new operator has no output", where=op.name)
    return op.outputs[0]


def _fed(op: Operator, operand: str) -> Operator:
    labels = op.labels or (None,)
    return with_fields(op, inputs=(operand, *op.inputs[1:]), labels=labels)


def _replaced(items: tuple[str, ...], index: int, new: str) -> tuple[str, ...]:
    return (*items[:index], new, *items[index + 1 :])


def _renamed_inputs(op: Operator, names: Mapping[str, str]) -> Operator:
    if not any(name in names for name in op.inputs):
        return op
    return with_fields(op, inputs=tuple(names.get(name, name) for name in op.inputs))


def _checked(graph: Graph, operators: Iterable[Operator]) -> Graph:
    """Return the graph with these operators, makers before users.

    Raises:
        GraphError: a name repeats, an operand has two makers or none, or there is a cycle.
    """
    operators = list(operators)
    makers: dict[str, Operator] = {}
    for op in operators:
        for name in op.outputs:
            if name in makers:
                raise GraphError(f"operand '{name}' is produced twice", found=f"{makers[name].name} and {op.name}")
            makers[name] = op
    repeated = [name for name, count in Counter(op.name for op in operators).items() if count > 1]
    if repeated:
        raise GraphError("two operators have one name", found=repeated[0])
    for op in operators:
        for name in op.inputs:
            if name not in makers:
                raise GraphError(f"operand '{name}' is used but never produced", where=f"{op.name} ({op.type})")
    annotations = {name: spec for name, spec in graph.annotations.items() if name in makers}
    return with_fields(graph, operators=_sorted(operators, makers), annotations=annotations)


def _sorted(operators: Sequence[Operator], makers: Mapping[str, Operator]) -> list[Operator]:
    """Return the operators in the given order, except that makers are moved before their first user."""
    order: dict[str, Operator] = {}
    for op in operators:
        waiting = {op.name: op}
        while waiting:
            last = next(reversed(waiting.values()))
            maker = next((makers[name] for name in last.inputs if makers[name].name not in order), None)
            if maker is None:
                order.setdefault(last.name, last)
                waiting.pop(last.name)
            elif maker.name in waiting:
                raise GraphError("operators form a cycle", found=f"{last.name} needs {maker.name} and feeds it")
            else:
                waiting[maker.name] = maker
    return list(order.values())
