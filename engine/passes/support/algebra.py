"""Expression trees rebuilt, and simplified without changing a bit of their results. Nothing here recurses.

A rule holds for every value of its operands, -0.0, infinities and NaN among them, and keeps dtype and shape. So x * 1
becomes x where x is a float tensor, and stays where x is an integer tensor and 1.0 would make it float32; x + 0 stays,
since -0.0 + 0 is 0.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace as with_fields
from typing import Final, TypeAlias

import numpy as np

from engine.errors import EngineError
from engine.expression import FUNCTIONS, Call, Input, List, Literal, Node, format, inputs, postorder
from engine.pnnx import Operator
from engine.tensor import BFLOAT16, UNKNOWN, TensorSpec, parse_dtype


def rebuilt(node: Node, children: Sequence[Node]) -> Node:
    """A node with other children; itself where they are the same."""
    if all(new is old for new, old in zip(children, node.children, strict=True)):
        return node
    return Call(node.function, tuple(children)) if isinstance(node, Call) else List(tuple(children))


def replaced(root: Node, others: Mapping[Node, Node]) -> Node:
    """A tree with other nodes in the place of some; what is put in is not looked into."""
    done: dict[Node, Node] = {}
    for node in postorder(root):
        done[node] = others[node] if node in others else rebuilt(node, [done[child] for child in node.children])
    return done[root]


def renumbered(root: Node, numbers: Mapping[int, int]) -> Node:
    """A tree that reads other inputs: ``@k`` becomes ``@numbers[k]``."""
    return replaced(root, {Input(old): Input(new) for old, new in numbers.items()})


def uses(root: Node) -> Iterator[int]:
    """The index of every input where it stands in the tree, repeated as often as it does."""
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, Input):
            yield node.index
        pending.extend(node.children)


def reading(op: Operator, root: Node, operands: Sequence[str]) -> Operator:
    """An operator as an expression.

    Args:
        root: reads ``operands`` by their index; those it does not read are left out.
    """
    used = sorted(inputs(root))
    text = format(renumbered(root, {old: new for new, old in enumerate(used)}))
    return with_fields(
        op,
        type="pnnx.Expression",
        inputs=tuple(operands[index] for index in used),
        labels=(),
        params={"expr": text},
        attributes={},
    )


Known: TypeAlias = Mapping[Node, object]
Rule: TypeAlias = Callable[[Call, Known], Node | None]

_EXACT: Final = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
"""Dtypes in which a power is computed without widening."""


def simplified(
    root: Node,
    operands: Sequence[object],
    annotated: TensorSpec | None = None,
    rules: Mapping[str, tuple[Rule, ...]] | None = None,
) -> Node:
    """A tree with the same value, dtype and shape, of fewer or cheaper nodes where a rule applies.

    What is a number, sizes and calls of literals among them, becomes a literal under any rules.

    Args:
        operands: what is known of ``@0``, ``@1``, ...: TensorSpecs, values, or UNKNOWN; what is computed from UNKNOWN
            stays as it is.
        annotated: what the file says of the result. A ``div`` of integers that it says gives integers, which rounds
            down, becomes a ``floor_divide``.
        rules: by default RULES.
    """
    try:
        simplifier = _Simplifier(operands, RULES if rules is None else rules)
        root = explicit(root, operands, annotated)
        result = simplifier.run(root)
    except EngineError:  # operands that do not fit: the run will say so
        return root
    return root if rounds_down(result, annotated) else result


def explicit(root: Node, operands: Sequence[object], annotated: TensorSpec | None) -> Node:
    """The tree with an outermost ``div`` that rounds down, as the annotation tells, spelled as what it is.

    Source: engine/expression/evaluation.py.
    """
    if not isinstance(root, Call) or not rounds_down(root, annotated):
        return root
    known = _Simplifier(operands, {}).known
    kinds = [_is_integral(known(arg)) for arg in root.children]
    return Call("floor_divide", root.children) if all(kinds) else root


def rounds_down(tree: Node, annotation: TensorSpec | None) -> bool:
    """Whether a ``div`` may mean another thing as the root of a tree than within one."""
    is_division = isinstance(tree, Call) and tree.function == "div"
    return is_division and annotation is not None and annotation.dtype.kind in "iu"


def _is_integral(value: object) -> bool:
    if isinstance(value, TensorSpec):
        return value.dtype.kind in "iu"
    return isinstance(value, int) and not isinstance(value, bool)


class _Simplifier:
    """Simplifies one tree; keeps what is known of its nodes."""

    def __init__(self, operands: Sequence[object], rules: Mapping[str, tuple[Rule, ...]]) -> None:
        self._rules = rules
        self._operands = operands
        self._open = {index for index, operand in enumerate(operands) if operand is UNKNOWN}
        self._known: dict[Node, object] = {}
        self._is_open: dict[Node, bool] = {}

    def run(self, root: Node) -> Node:
        """The tree, every node simplified after its children."""
        done: dict[Node, Node] = {}
        for node in postorder(root):
            done[node] = self._settled(rebuilt(node, [done[child] for child in node.children]))
        return done[root]

    def _settled(self, node: Node) -> Node:
        while (simpler := self._step(node)) is not None:
            node = simpler
        return node

    def _step(self, node: Node) -> Node | None:
        if not isinstance(node, Call) or self._reads_open(node):
            return None
        value = self.known(node)
        if isinstance(value, (bool, int, float)):
            return Literal(value)
        rules = self._rules.get(node.function, ())
        return next((found for rule in rules if (found := rule(node, self._facts(node)))), None)

    def _facts(self, node: Call) -> Known:
        return {each: self.known(each) for each in (node, *node.args, *(c for arg in node.args for c in arg.children))}

    def known(self, root: Node) -> object:
        """What is known of a node's value."""
        for node in _missing(root, self._known):
            self._known[node] = self._infer(node)
        return self._known[root]

    def _reads_open(self, root: Node) -> bool:
        """Whether a node's value depends on an operand of which nothing is known."""
        for node in _missing(root, self._is_open):
            is_open = isinstance(node, Input) and node.index in self._open
            self._is_open[node] = is_open or any(self._is_open[child] for child in node.children)
        return self._is_open[root]

    def _infer(self, node: Node) -> object:
        if isinstance(node, Input):
            return self._operands[node.index]
        if isinstance(node, Literal):
            return node.value
        items = [self._known[child] for child in node.children]
        with np.errstate(all="ignore"):
            return FUNCTIONS[node.function].infer(*items) if isinstance(node, Call) else items


def _missing(root: Node, done: Mapping[Node, object]) -> Iterator[Node]:
    """The nodes of a tree that are not done, children first; each must be done before the next is asked for."""
    pending = [] if root in done else [root]
    while pending:
        node = pending[-1]
        open_ones = [child for child in node.children if child not in done]
        if open_ones:
            pending.extend(open_ones)
            continue
        pending.pop()
        if node not in done:
            yield node


def _keeps(call: Call, kept: Node, known: Known) -> bool:
    """Whether the result has the dtype and shape of an argument that is a tensor."""
    return isinstance(known[kept], TensorSpec) and known[call] == known[kept]


def _kind(value: object) -> str:
    """The kind of a tensor's dtype as numpy has it: f floating, i integer, u unsigned, ...; nothing for others."""
    if not isinstance(value, TensorSpec):
        return ""
    return "f" if value.dtype == BFLOAT16 else value.dtype.kind


def _number(node: Node) -> int | float | None:
    value = node.value if isinstance(node, Literal) else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _drop_neutral(call: Call, known: Known) -> Node | None:
    """x * 1, x / 1, x - 0, x + -0.0, and of integers x + 0, x // 1."""
    first, second = call.args
    commutes = call.function in ("add", "mul")
    for kept, other in [(first, second), (second, first)][: 1 + commutes]:
        number, kind = _number(other), _kind(known[call])
        is_kept = number is not None and _keeps(call, kept, known) and kind in ("f", "i", "u")
        if is_kept and _is_neutral(call.function, number, kind == "f"):
            return kept
    return None


def _is_neutral(function: str, number: float | None, is_floating: bool) -> bool:
    if function in ("add", "sub"):
        is_minus_zero = number == 0 and math.copysign(1, number) < 0
        return number == 0 and (not is_floating or is_minus_zero == (function == "add"))
    return number == 1 and not (function == "floor_divide" and is_floating)


def _negations(call: Call, known: Known) -> Node | None:
    """-(-x) is x, x + -y is x - y, x - -y is x + y, -x + y is y - x."""
    inner = [arg.args[0] if isinstance(arg, Call) and arg.function == "neg" else None for arg in call.args]
    if call.function == "neg":
        return inner[0] if inner[0] is not None and isinstance(known[inner[0]], TensorSpec) else None
    if not _is_floating(call, known):
        return None
    first, second = call.args
    if inner[1] is not None:
        return Call("sub" if call.function == "add" else "add", (first, inner[1]))
    if inner[0] is not None and call.function == "add":
        return Call("sub", (second, inner[0]))
    return None


def _is_floating(call: Call, known: Known) -> bool:
    """Whether arguments and result are tensors of one floating dtype."""
    specs = [known[each] for each in (call, *call.args)]
    dtypes = {spec.dtype if isinstance(spec, TensorSpec) else None for spec in specs}
    return len(dtypes) == 1 and _kind(known[call]) == "f"


def _power(call: Call, known: Known) -> Node | None:
    """Powers that have a function of their own; for these exponents the reference takes the same one."""
    base, exponent = call.args
    spec, number = known[base], _number(exponent)
    if number is None or not isinstance(spec, TensorSpec) or spec.dtype not in _EXACT or known[call] != spec:
        return None
    if number == 1:
        return base
    function = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(number)
    if function is not None:
        return Call(function, (base,))
    squared = Call("mul", (base, base))
    is_leaf = isinstance(base, Input)  # anything else would be computed twice
    powers: dict[object, Node] = {3: Call("mul", (squared, base)), -2: Call("reciprocal", (squared,))}
    return powers.get(number) if is_leaf else None


def _division(call: Call, known: Known) -> Node | None:
    """x / 2**n is x * 2**-n: both are the one nearest number."""
    number = _number(call.args[1])
    if number is None or _kind(known[call]) != "f" or not _keeps(call, call.args[0], known):
        return None
    mantissa, exponent = math.frexp(abs(number)) if math.isfinite(number) else (0.0, 0)
    is_power_of_two = mantissa == 0.5 and -12 <= exponent <= 14  # so that float16 holds both
    return Call("mul", (call.args[0], Literal(1 / number))) if is_power_of_two else None


def _cast(call: Call, known: Known) -> Node | None:
    """A tensor cast to the dtype it has."""
    spec = known[call.args[0]]
    is_same = isinstance(spec, TensorSpec) and spec.dtype == parse_dtype(call.function)
    return call.args[0] if is_same and call.function != "torch.complex32" else None


RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "add": (_drop_neutral, _negations),
    "sub": (_drop_neutral, _negations),
    "mul": (_drop_neutral,),
    "div": (_drop_neutral, _division),
    "floor_divide": (_drop_neutral,),
    "neg": (_negations,),
    "pow": (_power,),
    **{name: (_cast,) for name in FUNCTIONS if name.startswith("torch.")},
}
"""The rules of each function, tried in this order."""
