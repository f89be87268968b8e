"""Dynamic sizes: numbers that code reads at run time, so that shapes share it.

A kernel is emitted with a ``Size`` in place of a number. Arithmetic with sizes gives sizes, which code reads from a
table. Any other use of their value is recorded as a guard. The code is correct for all numbers that pass the same
guards; only the table differs.

    sizes = Sizes()
    rows = sizes.dynamic(12)
    f.loop(0, rows)         # rows is read when the code runs
    if rows > 8: ...        # a guard: this code is for more than 8 rows
    range(rows)             # a guard: this code is for 12 rows
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast

from engine.ir import dims
from engine.ir.dims import largest, smallest

S = TypeVar("S")
# Computes a number from the values of all dynamic sizes.
Of: TypeAlias = Callable[[Sequence[int]], Any]

# A dynamic size in the text of an expression, and the operators there.
_DYNAMIC: Final = re.compile(r"\$(\d+)")
_NAMES: Final = ("add", "sub", "mul", "floordiv", "mod", "eq", "ne", "lt", "le", "gt", "ge")
_OPERATORS: Final = {
    **{name: getattr(operator, name) for name in _NAMES},
    "inf": math.inf,
    "nan": math.nan,
    "max": largest,
    "min": smallest,
}
SYMBOLIC: Final = -1
"""Entry of a pattern for a symbolic size."""
# Prefix of the names of values read from the table; the index follows.
READ: Final = "%size."


class Sizes:
    """Dynamic sizes of one kernel.

    Attributes:
        values: of the sizes, in order; each a number or a symbolic size (``engine.ir.dims``).
        pattern: one entry a request: 0 and 1 stay static and are listed, None for a dynamic number, ``SYMBOLIC`` for a
            symbolic one, whose code may differ from that for a number.
        guards: by text, results the code relies on.
        reads: by text, the index in the table, and how the number there is computed.
    """

    def __init__(self) -> None:
        self.values: list[int] = []
        self.pattern: list[int | None] = []
        self.guards: dict[str, object] = {}
        self.reads: dict[str, tuple[int, Of]] = {}

    def dynamic(self, value: int) -> int:
        """Return a dynamic size for a number; 0 and 1, which often need other code, stay static.

        A number that is dynamic already is returned unchanged.
        """
        if is_dynamic(value):
            return value
        if value in (0, 1):
            self.pattern.append(value)
            return value
        return self.dynamic_count(value)

    def dynamic_count(self, value: int) -> int:
        """Return a dynamic size for a number, including 0 and 1."""
        self.pattern.append(SYMBOLIC if dims.is_symbolic(value) else None)
        number = len(self.values)
        self.values.append(value)
        return cast(int, Size(self, hint(value), operator.itemgetter(number), f"${number}"))

    def numbers(self, values: Sequence[int]) -> list[int]:
        """Return the table for other values."""
        return [of(values) for _, of in self.reads.values()]


class GuardedTable:
    """Guards and table of code emitted for some sizes, as Python functions of other sizes.

    The texts of guards and reads are Python expressions: one function of all guards and one of all reads are fast
    to evaluate and small.

    Args:
        sizes: those the code was emitted for.
    """

    def __init__(self, sizes: Sizes) -> None:
        guards = " and ".join(f"{key} == {found!r}" for key, found in sizes.guards.items())
        reads = ", ".join(sizes.reads)
        try:
            self._fits: Callable[[Sequence[int]], bool] = _function(guards or "True")
            self._numbers: Callable[[Sequence[int]], list[int]] = _function(f"[{reads}]")
        except (SyntaxError, MemoryError, RecursionError):  # nested too deeply: the code is not reused
            self._fits, self._numbers = _never, sizes.numbers

    def fits(self, values: Sequence[int]) -> bool:
        """Return whether the code is correct for other values."""
        try:
            return self._fits(values)
        except ArithmeticError:  # a guard that only makes sense if an earlier one holds
            return False

    def numbers(self, values: Sequence[int]) -> list[int]:
        """Return the table for other values."""
        return self._numbers(values)


def _never(values: Sequence[int]) -> bool:
    return False


def _function(text: str) -> Any:
    """Return a function of the values of some sizes."""
    return eval("lambda v: " + _DYNAMIC.sub(r"v[\1]", text), _OPERATORS)  # the text contains no user input


class Size:
    """Dynamic size, or an expression of some; it may be used like an ``int`` or a ``Value``."""

    __slots__ = ("key", "of", "sizes", "value")

    type: Final = "i64"

    def __init__(self, sizes: Sizes, value: int, of: Of, key: str) -> None:
        self.sizes = sizes
        self.value = value
        self.of = of
        self.key = key

    @property
    def text(self) -> str:
        """Return the name of the value in IR, read from the table of sizes."""
        index, _ = self.sizes.reads.setdefault(self.key, (len(self.sizes.reads), self.of))
        return f"{READ}{index}"

    def specialise(self) -> int:
        """Return the number; the code is specialised for it."""
        return cast(int, self.guarded(self.key, self.value))

    def guarded(self, key: str, found: object) -> object:
        """Record a result the code relies on and return it."""
        self.sizes.guards.setdefault(key, found)
        return found

    def __repr__(self) -> str:
        return self.key

    def __str__(self) -> str:
        return str(self.specialise())

    def __format__(self, form: str) -> str:
        return format(self.specialise(), form)

    def __hash__(self) -> int:
        return hash(self.specialise())

    def __int__(self) -> int:
        return self.specialise()

    def __index__(self) -> int:
        return self.specialise()

    def __float__(self) -> float:
        return float(self.specialise())

    def __bool__(self) -> bool:
        return bool(self.guarded(f"bool({self.key})", bool(self.value)))

    def __neg__(self) -> Size:
        return Size(self.sizes, -self.value, lambda values: -self.of(values), f"(-{self.key})")


def hint(size: S) -> S:
    """Return the value of a number that may be dynamic, without a guard, for heuristics. Tuples are handled by item."""
    if isinstance(size, Size):
        return cast(S, size.value)
    return cast(S, tuple(map(hint, size))) if isinstance(size, tuple) else dims.hint(size)


def is_number(index: object) -> bool:
    """Return whether something is a number: constant or dynamic."""
    return isinstance(index, int | Size)


def is_dynamic(index: object) -> bool:
    """Return whether a number is dynamic: read at run time."""
    return isinstance(index, Size)


def is_varying(number: Any) -> bool:
    """Return whether a number, or the value of a dynamic one, is symbolic: the code serves many values."""
    return dims.is_symbolic(number.of(number.sizes.values) if isinstance(number, Size) else number)


def is_at_most(a: int, b: int) -> bool:
    """Return whether a number is at most another; for symbolic ones only if it can be proven."""
    difference = b - a
    if is_varying(difference):
        value = cast(Any, difference).of(cast(Any, difference).sizes.values) if is_dynamic(difference) else difference
        if not dims.is_at_most(0, value):
            return False
    return bool(difference >= 0)


def smaller(a: int, b: int) -> int:
    """Return the smaller of two numbers, without a guard if one is dynamic."""
    return _combined(smallest, "min", a, b)


def larger(a: int, b: int) -> int:
    """Return the larger of two numbers, without a guard if one is dynamic."""
    return _combined(largest, "max", a, b)


def _combined(function: Callable[[Any, Any], int], name: str, a: Any, b: Any) -> int:
    """Return a function of two numbers, either of which may be dynamic; with a float, the other is specialised."""
    if not (isinstance(a, int | Size) and isinstance(b, int | Size)):
        return function(_plain(a), _plain(b))
    if not isinstance(a, Size) and not isinstance(b, Size):
        return function(a, b)
    sizes = a.sizes if isinstance(a, Size) else cast(Size, b).sizes
    first, second = _of(a), _of(b)
    value = function(_value(a), _value(b))
    key = f"{name}({_key(a)},{_key(b)})"
    return cast(int, Size(sizes, value, lambda values: function(first(values), second(values)), key))


def _plain(number: Any) -> Any:
    return number.specialise() if isinstance(number, Size) else number


def _value(number: int | Size) -> int:
    return number.value if isinstance(number, Size) else number


def _key(number: int | Size) -> str:
    return number.key if isinstance(number, Size) else str(number)


def _of(number: int | Size) -> Of:
    return number.of if isinstance(number, Size) else lambda _: number


def _define(names: Sequence[str], make: Callable[[str], Callable[..., Any]]) -> None:
    for name in names:
        setattr(Size, f"__{name}__", make(name))


def _arithmetic(name: str) -> Callable[[Any, Any], Any]:
    function = getattr(operator, name)
    return lambda self, other: _combined(function, name, self, other)


def _reflected(name: str) -> Callable[[Any, Any], Any]:
    function = getattr(operator, name[1:])
    return lambda self, other: _combined(function, name[1:], other, self)


def _comparison(name: str) -> Callable[[Any, Any], Any]:
    function = getattr(operator, name)

    def compare(self: Size, other: Any) -> Any:
        if not isinstance(other, int | float | Size):
            return NotImplemented
        found = function(self.value, other.value if isinstance(other, Size) else other)
        key = f"{name}({self.key},{other.key if isinstance(other, Size) else other})"
        return self.guarded(key, found)

    return compare


def _divided(self: Size, other: Any) -> Any:
    return self // other, self % other


def _divided_reflected(self: Size, other: Any) -> Any:
    return other // self, other % self


_define(("add", "sub", "mul", "floordiv", "mod"), _arithmetic)
_define(("radd", "rsub", "rmul", "rfloordiv", "rmod"), _reflected)
_define(("eq", "ne", "lt", "le", "gt", "ge"), _comparison)
_define(("divmod",), lambda _: _divided)
_define(("rdivmod",), lambda _: _divided_reflected)
_define(("truediv",), lambda _: lambda self, other: self.specialise() / _plain(other))
_define(("rtruediv",), lambda _: lambda self, other: _plain(other) / self.specialise())
_define(("pow",), lambda _: lambda self, other: self.specialise() ** _plain(other))
_define(("or", "and"), lambda name: lambda self, other: getattr(operator, f"{name}_")(self.specialise(), _plain(other)))
