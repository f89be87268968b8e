"""Parser of the expression language: text to tokens, tokens to a tree.

Tokens are ``(``, ``)``, ``,``, ``[``, ``]`` and every longest run of other characters, a word. Space around a word does
not count; space within does, for a word may be the key of a dictionary. Literals are spelled as PNNX parameters are:
``1``, ``-2.5e-3``, ``inf``, ``nan.0``, ``1.0e+00-2.0e+00j`` (or ``...+-2.0e+00j``), ``True``, ``False``, ``None``; any
other word stands for itself.

Converters write calls, ``add(@0,mul(@1,2))``, but lose parentheses and commas around some functions:
``add(mul(log1p,@0),2),1`` stands for ``add(mul(log1p(@0),2),1)``. The order of the tokens survives, and every function
has a fixed number of arguments, so such texts are read as prefix (Polish) notation. A text is first read as calls,
where a function without arguments is an error; only if that fails, as prefix notation. A lost argument list always
leaves a bare function or surplus text behind, so the first reading never accepts a damaged text.

Both readings keep their own stack: depth costs memory, not recursion.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from typing import Final

from engine.errors import ExpressionError
from engine.expression.functions import FUNCTIONS
from engine.expression.tree import Call, Input, List, Literal, Node

MAX_LENGTH: Final = 1_000_000
"""Longest text in characters; converters write some hundred."""

PUNCTUATION: Final = frozenset("(),[]")

_TOKEN: Final = re.compile(r"[(),\[\]]|[^(),\[\]\s](?:[^(),\[\]]*[^(),\[\]\s])?")
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_MAGNITUDE: Final = r"(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|(?:inf|nan)(?:\.0)?)"
_FLOAT: Final = re.compile(rf"[-+]?{_MAGNITUDE}")
_COMPLEX: Final = re.compile(rf"(?:([-+]?{_MAGNITUDE})\+?(?=[-+]))?([-+]?{_MAGNITUDE})j")
_NAMES: Final[dict[str, bool | None]] = {"None": None, "True": True, "False": False}
_INT64: Final = range(-(2**63), 2**63)
MAX_DEPTH: Final = 2_000
"""Most calls and lists that may be open at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Token of an expression and the column it starts at, counted from 1."""

    text: str
    column: int

    def error(self, problem: str, *, expected: str) -> ExpressionError:
        """Return the error for this token where something else is expected."""
        shown = repr(self.text if len(self.text) <= 40 else self.text[:40] + "...")
        return ExpressionError(problem, where=f"column {self.column}", found=shown, expected=expected)


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a text.

    Raises:
        ExpressionError: for a text longer than MAX_LENGTH.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError("the expression is too long", found=f"{len(text):,} characters",
                              expected=f"at most {MAX_LENGTH:,}")  # fmt: skip
    return [Token(text=match.group(), column=match.start() + 1) for match in _TOKEN.finditer(text)]


def literal(token: Token) -> bool | int | float | complex | str | None:
    """Return the value of a word; floating numbers keep all digits that are written.

    Raises:
        ExpressionError: for an integer that 64 bits cannot hold.
    """
    text = token.text
    if text in _NAMES:
        return _NAMES[text]
    if _INTEGER.fullmatch(text):
        return _integer(token)
    if _FLOAT.fullmatch(text):
        return _float(text)
    if parts := _COMPLEX.fullmatch(text):
        return complex(_float(parts[1] or "0"), _float(parts[2]))
    return text


def _integer(token: Token) -> int:
    value = int(token.text) if len(token.text) <= 20 else _INT64.stop
    if value not in _INT64:
        raise token.error("the integer is too large", expected="one of 64 bits")
    return value


def _float(text: str) -> float:
    return float(text.removesuffix(".0")) if text.endswith(("inf.0", "nan.0")) else float(text)


@lru_cache(maxsize=1024)
def parse(text: str) -> Node:
    """Return the tree of an expression.

    Raises:
        ExpressionError: with the column, for a text that neither reading accepts.
    """
    tokens = tokenize(text)
    if len(tokens) == 1 and tokens[0].text not in PUNCTUATION:
        return leaf(tokens[0])  # so a lone function name is a word: expr=floor
    _check_functions(tokens)
    end = Token(text="", column=len(text.rstrip()) + 1)
    try:
        return _Calls(tokens, end).read()
    except ExpressionError as error:
        refusal = error
    try:
        return _Prefix(tokens, end).read()
    except ExpressionError as error:  # the first reading gives the better column, except for prefix texts
        raise (error if isinstance(refusal, _BareFunctionError) else refusal) from None


class _BareFunctionError(ExpressionError):
    """A function without arguments: the mark of a damaged text."""


@dataclass(slots=True, kw_only=True)
class _Open:
    """A call or list that is still being read."""

    token: Token
    items: list[Node] = field(default_factory=list)

    @property
    def is_list(self) -> bool:
        return self.token.text == "["

    def close(self) -> Node:
        return List(tuple(self.items)) if self.is_list else _call(self.token, self.items)


class _Reader(ABC):
    """Base of both readings: a position in the tokens, and the stack of open calls and lists."""

    def __init__(self, tokens: list[Token], end: Token) -> None:
        self._tokens = tokens
        self._end = end
        self._place = 0
        self._open: list[_Open] = []

    def read(self) -> Node:
        """Return the tree of the whole text."""
        while True:
            value = self._start()
            while value is not None:
                if not self._open:
                    if (rest := self._peek()) is not self._end:
                        raise _unexpected(rest, "the end of the expression")
                    return value
                value = self._follow(value)

    @abstractmethod
    def _start(self) -> Node | None:
        """Read the beginning of a value; None while it is not complete."""

    @abstractmethod
    def _follow(self, value: Node) -> Node | None:
        """Add a value to the innermost open call or list; return the value that this completes."""

    def _peek(self) -> Token:
        return self._tokens[self._place] if self._place < len(self._tokens) else self._end

    def _next(self) -> Token:
        token = self._peek()
        self._place += 1
        return token

    def _enter(self, token: Token) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise token.error("the expression is too deep", expected=f"at most {MAX_DEPTH} open calls")
        self._open.append(_Open(token=token))


class _Calls(_Reader):
    """``value := word | word "(" value {"," value} ")" | "[" [value {"," value}] "]"``."""

    def _start(self) -> Node | None:
        token = self._next()
        if token.text == "[":
            self._enter(token)
            return self._shut() if self._peek().text == "]" else None
        if not token.text or token.text in PUNCTUATION:
            raise _unexpected(token, "a value")
        if self._peek().text == "(":
            self._next()
            self._enter(token)
            return None
        if token.text in FUNCTIONS:
            raise _BareFunctionError("function without arguments", where=f"column {token.column}", found=token.text)
        return leaf(token)

    def _follow(self, value: Node) -> Node | None:
        top = self._open[-1]
        top.items.append(value)
        closer = "]" if top.is_list else ")"
        if self._peek().text == closer:
            return self._shut()
        separator = self._next()
        if separator.text != ",":
            raise _unexpected(separator, f"',' or '{closer}'")
        return None

    def _shut(self) -> Node:
        self._next()
        return self._open.pop().close()


class _Prefix(_Reader):
    """``value := word | function value... | "[" {value} "]"``; parentheses and commas do not count."""

    def __init__(self, tokens: list[Token], end: Token) -> None:
        super().__init__([token for token in tokens if token.text not in ("(", ")", ",")], end)

    def _start(self) -> Node | None:
        token = self._next()
        if not token.text:
            raise _unexpected(token, "a value")
        if token.text == "[" or token.text in FUNCTIONS:
            self._enter(token)
            return None
        if token.text == "]":
            return self._shut_list(token)
        return leaf(token)

    def _shut_list(self, token: Token) -> Node:
        if not self._open or not self._open[-1].is_list:
            raise _unexpected(token, "a value")
        return self._open.pop().close()

    def _follow(self, value: Node) -> Node | None:
        """Return the innermost open value if it has all arguments; ``size`` omits its second only at the end."""
        top = self._open[-1]
        top.items.append(value)
        if top.is_list:
            return None
        arity = FUNCTIONS[top.token.text].arity
        full = len(top.items) == arity[-1] or (len(top.items) in arity and self._peek().text in ("", "]"))
        return self._open.pop().close() if full else None


def leaf(token: Token) -> Input | Literal:
    """Return the node of a word: an input or a literal."""
    digits = token.text[1:]
    if token.text[0] == "@" and digits.isascii() and digits.isdigit():
        if len(digits) > 9:
            raise token.error("the input's number is too large", expected="an input such as @0")
        return Input(int(digits))
    return Literal(literal(token))


def _call(token: Token, args: list[Node]) -> Call:
    arity = FUNCTIONS[token.text].arity
    if len(args) not in arity:
        counts = " or ".join(map(str, arity))
        raise ExpressionError(f"{token.text} has the wrong number of arguments", where=f"column {token.column}",
                              found=len(args), expected=counts)  # fmt: skip
    for position, arg in enumerate(args, 1):
        if isinstance(arg, List) or (isinstance(arg, Literal) and isinstance(arg.value, (str, type(None)))):
            found = "a list" if isinstance(arg, List) else repr(arg.value)
            raise ExpressionError(
                f"argument {position} of {token.text} is not a number",
                where=f"column {token.column}",
                found=found,
                expected="a tensor or a number",
            )
    return Call(token.text, tuple(args))


def _check_functions(tokens: list[Token]) -> None:
    """Refuse unknown functions, which would count as words in prefix notation."""
    for token, follower in pairwise(tokens):
        if follower.text == "(" and token.text not in PUNCTUATION and token.text not in FUNCTIONS:
            near = get_close_matches(token.text[:40], FUNCTIONS, n=1)
            raise token.error("unknown function", expected=f"a function such as '{near[0] if near else 'add'}'")


def _unexpected(token: Token, expected: str) -> ExpressionError:
    if not token.text:
        return ExpressionError("the expression ends too early", where=f"column {token.column}", expected=expected)
    return token.error("unexpected text", expected=expected)
