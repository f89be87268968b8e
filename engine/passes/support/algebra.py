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

Known: TypeAlias = Mapping[Node, object]
Rule: TypeAlias = Callable[[Call, Known], Node | None]
_EXACT: Final = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
"""Dtypes in which a power is computed without an upcast."""


def rebuilt(node: Node, children: Sequence[Node]) -> Node:
    """Return a node with other children; itself if they are the same."""
    if all(new is old for new, old in zip(children, node.children, strict=True)):
        return node
    return Call(node.function, tuple(children)) if isinstance(node, Call) else List(tuple(children))


def replaced(root: Node, others: Mapping[Node, Node]) -> Node:
    """Return a tree with some nodes replaced; replacements are not searched."""
    done: dict[Node, Node] = {}
    for node in postorder(root):
        done[node] = others[node] if node in others else rebuilt(node, [done[child] for child in node.children])
    return done[root]


def renumbered(root: Node, numbers: Mapping[int, int]) -> Node:
    """Return a tree that reads other inputs: ``@k`` becomes ``@numbers[k]``."""
    return replaced(root, {Input(old): Input(new) for old, new in numbers.items()})


def uses(root: Node) -> Iterator[int]:
    """Yield the index of every input, as often as it occurs in the tree."""
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, Input):
            yield node.index
        pending.extend(node.children)


def reading(op: Operator, root: Node, operands: Sequence[str]) -> Operator:
    """Return an operator as an expression.

    Args:
        root: reads ``operands`` by their index; unread ones are dropped.
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


def simplified(
    root: Node,
    operands: Sequence[object],
    annotated: TensorSpec | None = None,
    rules: Mapping[str, tuple[Rule, ...]] | None = None,
) -> Node:
    """Return a tree with the same value, dtype and shape, and fewer or cheaper nodes if a rule applies.

    Known numbers, including sizes and calls of literals, become literals under any rules.

    Args:
        operands: descriptions of ``@0``, ``@1``, ...: TensorSpecs, values, or UNKNOWN; nodes that depend on UNKNOWN
            stay as they are.
        annotated: the file's annotation of the result. A ``div`` of integers with an integer annotation, which rounds
            down, becomes a ``floor_divide``.
        rules: by default RULES.
    """
    try:
        simplifier = _Simplifier(operands, RULES if rules is None else rules)
        root = explicit(root, operands, annotated)
        result = simplifier.run(root)
    except EngineError:  # operands that do not fit: the run will report it
        return root
    return root if rounds_down(result, annotated) else result


def explicit(root: Node, operands: Sequence[object], annotated: TensorSpec | None) -> Node:
    """Return the tree with an outermost ``div`` that rounds down, as annotated, replaced by ``floor_divide``.

    Source: engine/expression/evaluation.py.
    """
    if not isinstance(root, Call) or not rounds_down(root, annotated):
        return root
    known = _Simplifier(operands, {}).known
    kinds = [_is_integral(known(arg)) for arg in root.children]
    return Call("floor_divide", root.children) if all(kinds) else root


def rounds_down(tree: Node, annotation: TensorSpec | None) -> bool:
    """Return whether a ``div`` as the root of a tree may differ from one within a tree."""
    is_division = isinstance(tree, Call) and tree.function == "div"
    return is_division and annotation is not None and annotation.dtype.kind in "iu"


def _is_integral(value: object) -> bool:
    if isinstance(value, TensorSpec):
        return value.dtype.kind in "iu"
    return isinstance(value, int) and not isinstance(value, bool)


class _Simplifier:
    """Simplifier of one tree; caches what is known of its nodes."""

    def __init__(self, operands: Sequence[object], rules: Mapping[str, tuple[Rule, ...]]) -> None:
        self._rules = rules
        self._operands = operands
        self._open = {index for index, operand in enumerate(operands) if operand is UNKNOWN}
        self._known: dict[Node, object] = {}
        self._is_dynamic: dict[Node, bool] = {}

    def run(self, root: Node) -> Node:
        """Return the tree, every node simplified after its children."""
        done: dict[Node, Node] = {}
        for node in postorder(root):
            done[node] = self._simplified_node(rebuilt(node, [done[child] for child in node.children]))
        return done[root]

    def _simplified_node(self, node: Node) -> Node:
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
        """Return what is known of a node's value."""
        for node in _missing(root, self._known):
            self._known[node] = self._infer(node)
        return self._known[root]

    def _reads_open(self, root: Node) -> bool:
        """Return whether a node's value depends on an unknown operand."""
        for node in _missing(root, self._is_dynamic):
            is_dynamic = isinstance(node, Input) and node.index in self._open
            self._is_dynamic[node] = is_dynamic or any(self._is_dynamic[child] for child in node.children)
        return self._is_dynamic[root]

    def _infer(self, node: Node) -> object:
        if isinstance(node, Input):
            return self._operands[node.index]
        if isinstance(node, Literal):
            return node.value
        items = [self._known[child] for child in node.children]
        with np.errstate(all="ignore"):
            return FUNCTIONS[node.function].infer(*items) if isinstance(node, Call) else items


def _missing(root: Node, done: Mapping[Node, object]) -> Iterator[Node]:
    """Yield the nodes of a tree that are not done, children first; each must be done before the next is requested."""
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
    """Return whether the result has the dtype and shape of an argument that is a tensor."""
    return isinstance(known[kept], TensorSpec) and known[call] == known[kept]


def _kind(value: object) -> str:
    """Return the kind of a tensor's dtype like numpy: f floating, i integer, u unsigned, ...; empty for others."""
    if not isinstance(value, TensorSpec):
        return ""
    return "f" if value.dtype == BFLOAT16 else value.dtype.kind


def _number(node: Node) -> int | float | None:
    value = node.value if isinstance(node, Literal) else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _drop_neutral(call: Call, known: Known) -> Node | None:
    """Drop neutral elements: x * 1, x / 1, x - 0, x + -0.0, and for integers x + 0, x // 1."""
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
    """Drop negations: -(-x) is x, x + -y is x - y, x - -y is x + y, -x + y is y - x."""
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
    """Return whether arguments and result are tensors of one floating dtype."""
    specs = [known[each] for each in (call, *call.args)]
    dtypes = {spec.dtype if isinstance(spec, TensorSpec) else None for spec in specs}
    return len(dtypes) == 1 and _kind(known[call]) == "f"


def _power(call: Call, known: Known) -> Node | None:
    """Replace powers that have a function of their own, which the reference uses for these exponents too."""
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
    is_leaf = isinstance(base, Input)  # other nodes would be computed twice
    powers: dict[object, Node] = {3: Call("mul", (squared, base)), -2: Call("reciprocal", (squared,))}
    return powers.get(number) if is_leaf else None


def _division(call: Call, known: Known) -> Node | None:
    """Replace x / 2**n by x * 2**-n: both round to the same number."""
    number = _number(call.args[1])
    if number is None or _kind(known[call]) != "f" or not _keeps(call, call.args[0], known):
        return None
    mantissa, exponent = math.frexp(abs(number)) if math.isfinite(number) else (0.0, 0)
    is_power_of_two = mantissa == 0.5 and -12 <= exponent <= 14  # so that float16 holds both
    return Call("mul", (call.args[0], Literal(1 / number))) if is_power_of_two else None


def _cast(call: Call, known: Known) -> Node | None:
    """Drop a cast of a tensor to the dtype it has."""
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
"""Rules of each function, tried in this order."""
