"""Symbolic sizes: a dimension is an ``int`` or a ``Dim``.

A ``Dim`` is an expression over the dynamic sizes of a graph, with a *hint*: its value for the inputs at hand. Code
written for numbers runs on it unchanged:

* arithmetic gives another ``Dim``, or an ``int`` where the dynamic sizes cancel;
* a comparison is decided by algebra where that is possible for all sizes (``h * 4 // 4 == h``); otherwise the hint
  decides, and the decision is recorded as a *guard*: the result is valid for all sizes that decide it the same way;
* every other use of the number (``int()``, ``range()``, an index) gets the hint, and a guard that the size equals it;
* a heuristic uses ``hint(size)``, which records nothing. Its choice has to be correct for every size.

An expression is a polynomial with integer coefficients over *atoms*: the dynamic sizes, and operations that polynomials
lack (``//``, ``%``, ``max``, ``min``). It is kept in a canonical form, so that equal expressions are equal objects
without a guard. This follows TorchInductor's ``SizeVarAllocator`` and ``ShapeEnv``.

``polynomials`` has their arithmetic, ``atoms`` their variables, ``quotients`` bounds and division, ``proofs`` what
algebra shows, and ``guards`` what the hints decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, Final, TypeVar, cast

from engine.ir.atoms import Atom
from engine.ir.guards import Decisions
from engine.ir.polynomials import Terms, add, constant, is_number, multiply, negate, subtract

LEAST_OPEN: Final = 2
"""The least value of a dynamic size: 0 and 1 often lead to another program, and stay numbers."""

S = TypeVar("S")


class ShapeEnv(Decisions):
    """The dynamic sizes of a graph, the expressions over them, and the guards that decisions have recorded."""

    def dynamic(self, name: str, hint: int) -> int:
        """Add a dynamic size; 0 and 1 stay numbers.

        Args:
            name: identifies it; a name added twice is the same size.
            hint: its value now.
        """
        if hint < LEAST_OPEN:
            return hint
        if name not in self.names:
            self.names.append(name)
        return self.size(self.add_atom(Atom("size", name, (), (), hint, (LEAST_OPEN, None))))

    def size(self, terms: Terms) -> int:
        """Return a polynomial as a size: a number if nothing in it is dynamic, or it would exceed the limits."""
        terms = self.limited(terms)
        if not terms:
            return 0
        return terms[0][1] if is_number(terms) else cast(int, Dim(self, terms))


class Dim:
    """Symbolic size, usable as an ``int`` and an instance of it. See the module."""

    __slots__ = ("env", "terms")
    __class__ = property(lambda self: int)

    def __init__(self, env: ShapeEnv, terms: Terms) -> None:
        self.env = env
        self.terms = terms

    @property
    def hint(self) -> int:
        """Its value for the inputs at hand."""
        return self.env.hint_of(self.terms)

    def specialise(self) -> int:
        """Return the hint as a plain number and record the guard that the size equals it."""
        return self.env.specialise(self.terms)

    def __repr__(self) -> str:
        return self.env.text_of(self.terms)

    def __format__(self, form: str) -> str:
        return format(self.hint, form) if form else repr(self)

    def __hash__(self) -> int:
        return hash((id(self.env), self.terms))

    def __index__(self) -> int:
        return self.specialise()

    def __int__(self) -> int:
        return self.specialise()

    def __float__(self) -> float:
        return float(self.specialise())

    def __bool__(self) -> bool:
        return not self.env.decide("== 0", self.terms)

    def __neg__(self) -> int:
        return self.env.size(negate(self.env.reduced(self.terms)))

    def __pos__(self) -> int:
        return cast(int, self)

    def __abs__(self) -> int:
        return cast(int, self) if self >= 0 else -self

    def __floor__(self) -> int:
        return cast(int, self)

    def __ceil__(self) -> int:
        return cast(int, self)

    def __trunc__(self) -> int:
        return cast(int, self)

    def __round__(self, digits: int | None = None) -> int:
        return cast(int, self)

    def __add__(self, other: Any) -> Any:
        return self._sum(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._sum(other, -1)

    def __rsub__(self, other: Any) -> Any:
        found = self._sum(other, -1)
        return found if found is NotImplemented else -found

    def _sum(self, other: Any, sign: int) -> Any:
        number = _as_size(other)
        if number is None:
            return self.specialise() + sign * other if isinstance(other, float) else NotImplemented
        return self.env.size(self.env.reduced(add(self.terms, terms_of(number), sign)))

    def __mul__(self, other: Any) -> Any:
        number = _as_size(other)
        if number is None:
            return self.specialise() * other if isinstance(other, float) else NotImplemented
        return self.env.size(self.env.reduced(multiply(self.terms, terms_of(number))))

    __rmul__ = __mul__

    def __pow__(self, other: Any) -> Any:
        if not isinstance(other, Dim) and isinstance(other, int) and 0 <= other <= _MOST_FACTORS:
            return reduce(lambda found, _: found * self, range(other), cast(Any, 1))
        return self.specialise() ** other

    def __rpow__(self, other: Any) -> Any:
        return other ** self.specialise()

    def __floordiv__(self, other: Any) -> Any:
        number = _as_size(other)
        if number is None:
            return self.specialise() // other if isinstance(other, float) else NotImplemented
        return self.env.size(self.env.divided(*map(self.env.reduced, (self.terms, terms_of(number)))))

    def __rfloordiv__(self, other: Any) -> Any:
        number = _as_size(other)
        if number is None:
            return NotImplemented
        return self.env.size(self.env.divided(terms_of(number), self.env.reduced(self.terms)))

    def __mod__(self, other: Any) -> Any:
        number = _as_size(other)
        if number is None:
            return self.specialise() % other if isinstance(other, float) else NotImplemented
        return self.env.size(self.env.remainder(*map(self.env.reduced, (self.terms, terms_of(number)))))

    def __rmod__(self, other: Any) -> Any:
        number = _as_size(other)
        if number is None:
            return NotImplemented
        return self.env.size(self.env.remainder(terms_of(number), self.env.reduced(self.terms)))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return self.specialise() / (other.specialise() if isinstance(other, Dim) else other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.specialise()

    def __and__(self, other: Any) -> Any:
        return self.specialise() & _specialise(other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return self.specialise() | _specialise(other)

    __ror__ = __or__

    def __lshift__(self, other: Any) -> Any:
        return self * (1 << _specialise(other))

    def __rshift__(self, other: Any) -> Any:
        return self // (1 << _specialise(other))

    def __eq__(self, other: object) -> bool:
        number = _as_size(other)
        if number is None or (isinstance(number, Dim) and number.env is not self.env):
            return isinstance(other, float) and self.specialise() == other
        return self.env.decide("== 0", subtract(self.terms, terms_of(number)))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __ge__(self, other: Any) -> Any:
        return self._is_least(other, 1, math.ceil)

    def __le__(self, other: Any) -> Any:
        return self._is_least(other, -1, math.floor)

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __lt__(self, other: Any) -> bool:
        return not self >= other

    def _is_least(self, other: Any, sign: int, rounded: Callable[[float], int]) -> Any:
        """Return whether ``sign * (self - other)`` is not negative."""
        if isinstance(other, float) and not math.isfinite(other):
            return sign * other < 0
        number = _as_size(other)
        if number is None:
            if not isinstance(other, float):
                return NotImplemented
            number = rounded(other)
        difference = subtract(self.terms, terms_of(number))
        return self.env.decide(">= 0", difference if sign > 0 else negate(difference))


# Powers of a size that are multiplied out.
_MOST_FACTORS: Final = 4


def hint(size: S) -> S:
    """Return the current value of a size, for heuristics, without a guard; tuples and lists item by item."""
    if type(size) is int:
        return size
    if isinstance(size, Dim):
        return cast(S, size.hint)
    if isinstance(size, tuple | list):
        return cast(S, type(size)([each if type(each) is int else hint(each) for each in size]))
    return size


def is_symbolic(value: object) -> bool:
    """Return whether a value is a symbolic size, or a tuple or list with one in it."""
    if isinstance(value, tuple | list):
        return any(map(is_symbolic, value))
    return isinstance(value, Dim)


def is_same(a: Any, b: Any) -> bool:
    """Return whether two values are equal for all sizes that pass the guards; it records none.

    Tuples are compared item by item.
    """
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(is_same, a, b))
    if isinstance(a, Dim) or isinstance(b, Dim):
        env = cast(ShapeEnv, _env_of((a, b)))
        if any(isinstance(each, Dim) and each.env is not env for each in (a, b)) or None in (_as_size(a), _as_size(b)):
            return False
        return not env.reduced(subtract(terms_of(a), terms_of(b)))
    return bool(a == b)


def is_at_most(a: int, b: int) -> bool:
    """Return whether a is at most b for all sizes that pass the guards; it records none."""
    env = _env_of((a, b))
    return a <= b if env is None else env.is_never_negative(subtract(terms_of(b), terms_of(a)))


def specialise(value: Any) -> Any:
    """Return a symbolic size (or those of a tuple or list) as its hint, guarded; other values unchanged."""
    if isinstance(value, tuple | list):
        return type(value)(specialise(each) for each in value)
    return value.specialise() if isinstance(value, Dim) else value


def plain(size: Any) -> int:
    """Return a whole number as Python's ``int``; a symbolic size is returned unchanged."""
    return cast(int, size) if type(size) is int or isinstance(size, Dim) else int(size)


def largest(*values: int) -> int:
    """Return the largest of some sizes; ``max`` would record a guard on which one that is."""
    env = _env_of(values)
    return max(values) if env is None else env.size(env.extreme("max", map(terms_of, values)))


def smallest(*values: int) -> int:
    """Return the smallest of some sizes; ``min`` would record a guard on which one that is."""
    env = _env_of(values)
    return min(values) if env is None else env.size(env.extreme("min", map(terms_of, values)))


def _env_of(values: Iterable[Any]) -> ShapeEnv | None:
    return next((each.env for each in values if isinstance(each, Dim)), None)


def terms_of(number: Any) -> Terms:
    """Return a size as a polynomial."""
    if isinstance(number, Dim):
        return number.terms
    return constant(number)


def _as_size(value: Any) -> Any:
    """Return a whole number or a symbolic size; None for other values."""
    if isinstance(value, Dim) or type(value) is int:
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    try:
        return value.__index__()
    except (AttributeError, TypeError):
        return None


def _specialise(value: Any) -> Any:
    return value.specialise() if isinstance(value, Dim) else value
