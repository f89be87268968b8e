"""Trees as text: for the parser, in infix notation, and as an indented drawing. Nothing here recurses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from engine.errors import ExpressionError
from engine.expression.functions import FUNCTIONS
from engine.expression.parser import PUNCTUATION, leaf, tokenize
from engine.expression.tree import Call, Input, List, Literal, Node

DEEPEST: Final = 100
"""Levels by which a drawing is indented; deeper nodes stay at this level, or every line would be longer."""

# Function -> its symbol, the weakest first; functions of one precedence are grouped.
_STRENGTHS: Final[tuple[dict[str, str], ...]] = (
    {"or": "|"},
    {"xor": "^"},
    {"and": "&"},
    {"lshift": "<<", "rshift": ">>"},
    {"add": "+", "sub": "-"},
    {"mul": "*", "div": "/", "floor_divide": "//", "remainder": "%"},
    {"neg": "-"},
    {"pow": "**"},
)
_SYMBOLS: Final = {name: symbol for alike in _STRENGTHS for name, symbol in alike.items()}
_BINDING: Final = {name: strength for strength, alike in enumerate(_STRENGTHS, 1) for name in alike}
_NEG: Final = _BINDING["neg"]


def format(root: Node) -> str:
    """Return the text that ``parse`` reads as this tree.

    Raises:
        ExpressionError: for a tree without a text, such as a word with a comma in it.
    """
    if isinstance(root, Literal):
        return _spelling(root, alone=True)
    pieces: list[str] = []
    pending: list[Node | str] = [root]
    while pending:
        piece = pending.pop()
        if isinstance(piece, str):
            pieces.append(piece)
        elif isinstance(piece, Input):
            pieces.append(f"@{piece.index}")
        elif isinstance(piece, Literal):
            pieces.append(_spelling(piece, alone=False))
        else:
            opening, closing = (f"{piece.function}(", ")") if isinstance(piece, Call) else ("[", "]")
            pieces.append(opening)
            pending.append(closing)
            pending.extend(reversed(list(_joined(piece.children, ","))))
    return "".join(pieces)


def _joined(nodes: Sequence[Node], separator: str) -> Iterator[Node | str]:
    for position, node in enumerate(nodes):
        if position:
            yield separator
        yield node


def _spelling(node: Literal, *, alone: bool) -> str:
    value = node.value
    if not isinstance(value, str):
        return _number(value)
    words = tokenize(value)
    is_word = [word.text for word in words] == [value] and value not in PUNCTUATION and leaf(words[0]) == node
    if not is_word or (value in FUNCTIONS and not alone):
        raise ExpressionError("the word cannot be written", found=repr(value), expected="a plain word")
    return value


def _number(value: complex | None) -> str:
    if not isinstance(value, complex):
        return repr(value)
    sign = "-" if math.copysign(1, value.imag) < 0 and not math.isnan(value.imag) else "+"
    return f"{value.real!r}{sign}{abs(value.imag)!r}j"


@dataclass(frozen=True, slots=True)
class _Operand:
    """A node that needs parentheses unless it binds stronger than ``above`` or equals ``same``."""

    node: Node
    above: int = 0
    same: str | None = None


def infix(root: Node, names: Sequence[str] | None = None) -> str:
    """Return the expression in infix notation: ``(@0 + @1) - @2 * 3``.

    Operators of one precedence are never mixed without parentheses, so readers need no rules.

    Args:
        names: texts for ``@0``, ``@1``, ...; inputs beyond them stay as they are.
    """
    pieces: list[str] = []
    pending: list[_Operand | str] = [_Operand(root)]
    while pending:
        piece = pending.pop()
        if isinstance(piece, str):
            pieces.append(piece)
        else:
            pending.extend(reversed(_written(piece, names or ())))
    return "".join(pieces)


def _written(operand: _Operand, names: Sequence[str]) -> list[_Operand | str]:
    """Return a node as symbols and children."""
    node = operand.node
    if isinstance(node, Input):
        return [names[node.index] if node.index < len(names) else f"@{node.index}"]
    if isinstance(node, Literal):
        text = _number(node.value) if not isinstance(node.value, str) else node.value
        return [f"({text})" if _needs_parentheses(node, operand.above) else text]
    if isinstance(node, List) or node.function not in _SYMBOLS:
        opening, closing = ("[", "]") if isinstance(node, List) else (f"{node.function}(", ")")
        inner = [part if isinstance(part, str) else _Operand(part) for part in _joined(node.children, ", ")]
        return [opening, *inner, closing]
    strength = _BINDING[node.function]
    bare = strength > operand.above or node.function == operand.same
    return _operation(node, strength) if bare else ["(", *_operation(node, strength), ")"]


def _needs_parentheses(node: Literal, above: int) -> bool:
    """Return whether a literal with a sign or two parts would be misread next to its operator."""
    is_negative = isinstance(node.value, (int, float)) and repr(node.value).startswith("-")
    return isinstance(node.value, complex) or (above >= _NEG and is_negative)


def _operation(node: Call, strength: int) -> list[_Operand | str]:
    symbol = _SYMBOLS[node.function]
    if node.function == "neg":
        return [symbol, _Operand(node.args[0], above=strength)]
    left, right = node.args
    same = None if node.function == "pow" else node.function  # a ** b ** c would mean a ** (b ** c)
    return [_Operand(left, above=strength, same=same), f" {symbol} ", _Operand(right, above=strength)]


def explain(root: Node) -> str:
    """Return a drawing of the tree, one node a line, arguments below their function.

    ::

        sub
        ├─ @0
        └─ mul
           ├─ @1
           └─ 2
    """
    lines: list[str] = []
    pending: list[tuple[Node, str, str]] = [(root, "", "")]
    while pending:
        node, first, rest = pending.pop()
        lines.append(first + _title(node))
        last = len(node.children) - 1
        for position, child in reversed([*enumerate(node.children)]):
            branch, below = ("└─ ", "   ") if position == last else ("├─ ", "│  ")
            pending.append((child, rest + branch, rest if len(rest) >= 3 * DEEPEST else rest + below))
    return "\n".join(lines)


def _title(node: Node) -> str:
    if isinstance(node, Input):
        return f"@{node.index}"
    if isinstance(node, Literal):
        return node.value if isinstance(node.value, str) else _number(node.value)
    return node.function if isinstance(node, Call) else "list"
