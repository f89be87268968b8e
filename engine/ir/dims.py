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
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias, TypeVar, cast

# Growth limits of expressions: no network comes near, and a file must not make compilation take very long.
MOST_TERMS: Final = 256
MOST_DEGREE: Final = 16
MOST_DEPTH: Final = 48
MOST_ATOMS: Final = 20_000
LEAST_OPEN: Final = 2
"""The least value of a dynamic size: 0 and 1 often lead to another program, and stay numbers."""

S = TypeVar("S")
Bounds: TypeAlias = tuple[int | None, int | None]
"""Least and largest value of an expression; None if unknown."""
Monomial: TypeAlias = tuple[int, ...]
"""A product of atoms by their numbers, in ascending order; the empty one is 1."""
Terms: TypeAlias = tuple[tuple[Monomial, int], ...]
"""A polynomial: monomials in ascending order, with coefficients that are not 0."""
Guards: TypeAlias = Mapping[tuple[str, Terms], bool]
"""Relation (``== 0`` or ``>= 0``) and polynomial -> whether it holds for the hints."""
NO_GUARDS: Final[Guards] = {}


@dataclass(frozen=True, slots=True)
class Atom:
    """Variable of polynomials: a dynamic size, or an operation on two polynomials.

    Args:
        operation: ``size`` of a dynamic size; else ``//``, ``%``, ``max`` or ``min``.
        name: of a dynamic size.
        bounds: its least and largest value, None if unknown.
    """

    operation: str
    name: str
    left: Terms
    right: Terms
    hint: int
    bounds: Bounds


class ShapeEnv:
    """The dynamic sizes of a graph, the expressions over them, and the guards that decisions have recorded.

    Attributes:
        names: of the dynamic sizes, in the order they were added.
        guards: polynomial and relation (``== 0`` or ``>= 0``) -> whether it holds for the hints.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.guards: dict[tuple[str, Terms], bool] = {}
        self.atoms: list[Atom] = []
        self._depths: list[int] = []
        self._numbers: dict[tuple[str, str, Terms, Terms], int] = {}
        self._bounds: dict[Terms, Bounds] = {}
        self._decisions: dict[tuple[str, Terms], bool] = {}  # also those that other guards imply
        self._multiples: dict[Terms, dict[tuple[int, int], tuple[str, Terms]]] = {}
        self._atom_bounds: dict[int, Bounds] = {}
        self._equals: dict[int, Terms] = {}  # atom -> what it equals by a guard; none of these atoms is in there
        self._reduced: dict[Terms, Terms] = {}
        # (atom, 0 or 1) -> its least or largest value by a guard, and that guard
        self._tightened: dict[tuple[int, int], tuple[int, tuple[str, Terms]]] = {}

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
        return self._atom(Atom("size", name, (), (), hint, (LEAST_OPEN, None)))

    def assume(self, guards: Guards) -> None:
        """Record the guards of another environment that concern only dynamic sizes of this one."""
        for relation, terms in guards:
            if all(number < len(self.names) for product, _ in terms for number in product):
                self.decide(relation, terms)

    def _atom(self, atom: Atom) -> int:
        key = atom.operation, atom.name, atom.left, atom.right
        number = self._numbers.setdefault(key, len(self.atoms))
        if number == len(self.atoms):
            self.atoms.append(atom)
            self._depths.append(1 + self._depth(atom.left, atom.right))
        return cast(int, Dim(self, (((number,), 1),)))

    def _depth(self, *operands: Terms) -> int:
        return max((self._depths[k] for terms in operands for product, _ in terms for k in product), default=0)

    def operate(self, operation: str, left: Terms, right: Terms, bounds: Bounds) -> int:
        """Return the atom of an operation on two polynomials; a number where expressions would grow beyond bounds."""
        if self._depth(left, right) >= MOST_DEPTH or len(self.atoms) >= MOST_ATOMS:
            return _OPERATIONS[operation](self.specialise(left), self.specialise(right))
        hint = _OPERATIONS[operation](self.hint_of(left), self.hint_of(right))
        return self._atom(Atom(operation, "", left, right, hint, bounds))

    def specialise(self, terms: Terms) -> int:
        """Return the value of a polynomial for the hints, and record a guard that it equals that."""
        value = self.hint_of(terms)
        self.decide("== 0", _sum(terms, terms_of(value), -1))
        return value

    def made(self, terms: Terms) -> int:
        """Return a polynomial as a size; a number if nothing in it is dynamic or it would exceed the limits."""
        if not terms:
            return 0
        if len(terms) == 1 and not terms[0][0]:
            return terms[0][1]
        if len(terms) > MOST_TERMS or len(max((product for product, _ in terms), key=len)) > MOST_DEGREE:
            return self.specialise(terms)
        return cast(int, Dim(self, terms))

    def hint_of(self, terms: Terms) -> int:
        """Return the value of a polynomial for the hints of the dynamic sizes."""
        return sum(factor * math.prod(self.atoms[k].hint for k in product) for product, factor in terms)

    def bounds_of(self, terms: Terms) -> Bounds:
        """Return bounds of a polynomial for all values of the dynamic sizes."""
        if terms not in self._bounds:
            ends = self._bounds_by_counting(terms)
            expanded = self._without_quotients(terms)
            self._bounds[terms] = ends if expanded is None else _narrowest(ends, self.bounds_of(expanded))
        return self._bounds[terms]

    def _bounds_by_counting(self, terms: Terms) -> Bounds:
        low, high = (
            max((end for way in (False, True) if (end := self._least(each, falls=way)) is not None), default=None)
            for each in (terms, _negative(terms))
        )
        return low, None if high is None else -high

    def _without_quotients(self, terms: Terms) -> Terms | None:
        """Return a polynomial with ``x - x % a`` for ``x // a * a``; None where there is no such product."""
        found: dict[Monomial, int] = {}
        is_opened = False
        for product, factor in terms:
            number = next((each for each in product if self._divides(each, factor)), None)
            if number is None:
                _add_to(found, product, factor)
                continue
            atom, is_opened = self.atoms[number], True
            rest = ((cast(Monomial, _without(product, (number,))), factor // atom.right[0][1]),)
            dividend = _sum(atom.left, terms_of(_remainder(self, atom.left, atom.right)), -1)
            for monomial, each in _product(rest, dividend):
                _add_to(found, monomial, each)
        return _canonical(found) if is_opened else None

    def _divides(self, number: int, factor: int) -> bool:
        """Return whether an atom is a quotient by a number of which a factor is a multiple."""
        atom = self.atoms[number]
        return atom.operation == "//" and _is_number(atom.right) and factor % atom.right[0][1] == 0

    def _least(self, terms: Terms, *, falls: bool) -> int | None:
        """Return a lower bound, by counting every atom from one of its bounds; None if unknown.

        Args:
            falls: whether the atom of a term with a negative coefficient is counted from its largest value.

        With ``atom = least + more``, a polynomial of ``more`` whose coefficients are not negative is least at 0.
        """
        shifted: dict[Monomial, int] = {(): 0}
        for product, factor in terms:
            parts: dict[Monomial, int] = {(): factor}
            for number in product:
                least, most = self.bounds_of_atom(number)
                if least is None and most is None:
                    return None
                # A term with a negative coefficient is least where the atom is largest.
                is_falling = falls and factor < 0 and most is not None and len(product) == 1
                start, sign = (most, -1) if is_falling or least is None else (least, 1)
                grown: dict[Monomial, int] = {}
                for inner, coefficient in parts.items():
                    _add_to(grown, inner, coefficient * cast(int, start))
                    _add_to(grown, tuple(sorted((*inner, number * 2 + (sign < 0)))), coefficient * sign)
                parts = grown
            for inner, coefficient in parts.items():
                _add_to(shifted, inner, coefficient)
        if any(factor < 0 for product, factor in shifted.items() if product):
            return None
        return shifted[()]

    def decide(self, relation: str, terms: Terms) -> bool:
        """Return whether a polynomial is 0 (``== 0``), or not negative (``>= 0``): by algebra, or with a guard."""
        terms = self.reduced(terms)
        return self._is_zero(terms) if relation == "== 0" else self._is_least_zero(terms)

    def reduced(self, terms: Terms) -> Terms:
        """Return a polynomial with each atom replaced by what it equals for all sizes that pass the guards."""
        if not self._equals:
            return terms
        if terms not in self._reduced:
            total: dict[Monomial, int] = {}
            for product, factor in terms:
                part = reduce(_product, map(self._reduced_atom, product), terms_of(factor))
                for inner, coefficient in part:
                    _add_to(total, inner, coefficient)
            self._reduced[terms] = _canonical(total)
        return self._reduced[terms]

    def _reduced_atom(self, number: int) -> Terms:
        """Return what an atom equals, or the operation on its reduced operands."""
        if number in self._equals:
            return self._equals[number]
        atom = self.atoms[number]
        left, right = self.reduced(atom.left), self.reduced(atom.right)
        if (left, right) == (atom.left, atom.right) or (not right and atom.operation in ("//", "%")):
            return (((number,), 1),)
        if atom.operation in ("max", "min"):
            return terms_of(_extreme(atom.operation, (self.made(left), self.made(right))))
        return terms_of((divided if atom.operation == "//" else _remainder)(self, left, right))

    def _replace(self, terms: Terms) -> None:
        """Replace an atom from now on, where a guard says that a polynomial is 0: ``h == 2 * (h // 2)``."""
        alone = [(product[0], factor) for product, factor in terms if len(product) == 1 and abs(factor) == 1]
        for number, factor in sorted(alone, reverse=True):
            rest = _sum(terms, (((number,), factor),), -1)
            equal = _negative(rest) if factor > 0 else rest
            if any(number in product for product, _ in equal):
                continue
            earlier = dict(self._equals)
            self._equals[number] = equal
            self._reduced.clear()
            if self.reduced(equal) == equal:
                self._equals = {each: self.reduced(other) for each, other in self._equals.items()}
                self._reduced.clear()
                return
            self._equals = earlier
            self._reduced.clear()

    def _is_zero(self, terms: Terms) -> bool:
        found = self._decided("== 0", terms)
        if found is not None:
            return found
        if len(terms) == 1 and terms != (((terms[0][0][0],), 1),):  # a product
            return any(self._is_zero((((number,), 1),)) for number in dict.fromkeys(terms[0][0]))
        ordered = self._as_order(terms)
        if ordered is not None:
            return self._is_least_zero(ordered)
        if terms[0][1] < 0:
            terms = _negative(terms)
        least, most = self.bounds_of(terms) if self._as_multiple(terms) is None else (None, None)
        if least == 0:
            return not self._is_least_zero(_sum(terms, terms_of(1), -1))
        if most == 0:
            return not self._is_least_zero(_sum(_negative(terms), terms_of(1), -1))
        return self._recorded("== 0", terms)

    def _as_order(self, terms: Terms) -> Terms | None:
        """Return the non-negative polynomial if ``max`` or ``min`` of two equals one of them: ``max(a, b) - a``."""
        for product, factor in terms:
            atom = self.atoms[product[0]] if len(product) == 1 and abs(factor) == 1 else None
            if atom is not None and atom.operation in ("max", "min"):
                rest = _sum(terms, ((product, factor),), -1)
                other = _negative(rest) if factor > 0 else rest
                if other in (atom.left, atom.right):
                    remaining = atom.right if other == atom.left else atom.left
                    return _sum(other, remaining, -1) if atom.operation == "max" else _sum(remaining, other, -1)
        return None

    def _is_least_zero(self, terms: Terms) -> bool:
        found = self._decided(">= 0", terms)
        if found is None:
            terms = self._as_bound(terms)
            found = self._decided(">= 0", terms)
        return self._recorded(">= 0", terms) if found is None else found

    def _as_bound(self, terms: Terms) -> Terms:
        """Return an equivalent non-negative polynomial, as a bound of a dynamic size if possible."""
        constant = dict(terms).get((), 0)
        rest = [(product, factor) for product, factor in terms if product]
        common = math.gcd(*(factor for _, factor in rest))
        if common > 1:
            rest, constant = [(product, factor // common) for product, factor in rest], constant // common
        terms = _canonical({(): constant, **dict(rest)})
        if len(rest) > 1 or len(rest[0][0]) > 1:
            return terms
        atom, sign = self.atoms[rest[0][0][0]], rest[0][1]
        if atom.operation != "//" or not _is_number(atom.right) or atom.right[0][1] < 0:
            return terms
        by = atom.right[0][1]  # x // by >= -constant, or x // by <= constant
        if sign > 0:
            return self._as_bound(_sum(atom.left, terms_of(constant * by), 1))
        return self._as_bound(_sum(_negative(atom.left), terms_of(constant * by + by - 1), 1))

    def _recorded(self, relation: str, terms: Terms) -> bool:
        key = relation, terms
        if key not in self._decisions:
            hint = self.hint_of(terms)
            holds = hint == 0 if relation == "== 0" else hint >= 0
            self._decisions[key] = self.guards[key] = holds
            self._narrow(key, holds)
            if relation == "== 0" and holds:
                self._merge_multiples(terms)
                self._replace(terms)
        return self._decisions[key]

    def _merge_multiples(self, terms: Terms) -> None:
        """Join the guard that ``x // a`` is a multiple with the one that ``x // b`` is: ``x // a == c * (x // (a*c))``.

        Each level of a pyramid records one that its size is even.
        """
        found = self._as_multiple(terms)
        if found is None:
            return
        dividend, low, high = found
        others = self._multiples.setdefault(dividend, {})
        for (first, last), key in list(others.items()):
            if last == low or first == high or (last == high and first >= low):
                low, high = min(low, first), max(high, last)
                del others[first, last], self.guards[key]
                self.guards.pop(("== 0", terms), None)
        whole, part = terms_of(divided(self, dividend, terms_of(low))), divided(self, dividend, terms_of(high))
        terms = _sum(whole, _product(terms_of(part), terms_of(high // low)), -1)
        others[low, high] = "== 0", terms if terms[0][1] > 0 else _negative(terms)
        self.guards[others[low, high]] = True

    def _as_multiple(self, terms: Terms) -> tuple[Terms, int, int] | None:
        """Return x, a and b of ``x // a == (b / a) * (x // b)``, None of another polynomial."""
        for (product, factor), (other, times) in (terms, terms[::-1]) if len(terms) == 2 else ():
            if abs(factor) != 1 or factor * times >= 0 or len(product) != 1 or len(other) != 1:
                continue
            whole, part = self.atoms[product[0]], self.atoms[other[0]]
            if part.operation != "//" or not _is_number(part.right):
                continue
            high = part.right[0][1]
            is_divided = whole.operation == "//" and whole.left == part.left and _is_number(whole.right)
            if not is_divided and ((product, 1),) != part.left:
                continue
            low = whole.right[0][1] if is_divided else 1
            if low > 0 and high == low * abs(times):
                return part.left, low, high
        return None

    def _narrow(self, key: tuple[str, Terms], holds: bool) -> None:
        """Bound an atom by a guard; an earlier, weaker guard is dropped."""
        relation, terms = key
        rest = [(product, factor) for product, factor in terms if product]
        if len(rest) != 1 or len(rest[0][0]) != 1 or abs(rest[0][1]) != 1 or (relation == "== 0" and not holds):
            return
        (number,), sign = rest[0]
        value = -sign * dict(terms).get((), 0)
        is_low = (sign > 0) == holds
        if relation == ">= 0":
            value += 0 if holds else -1 if sign > 0 else 1
        for side in (0, 1) if relation == "== 0" else (0,) if is_low else (1,):
            earlier = self._tightened.get((number, side))
            if earlier is not None and earlier[1] in self.guards and earlier[1][0] == ">= 0":
                del self.guards[earlier[1]]
            self._tightened[number, side] = value, key
        self._bounds.clear()
        self._atom_bounds.clear()

    def bounds_of_atom(self, number: int) -> Bounds:
        """Return bounds of an atom, as far as its operands and the guards tell them."""
        if number not in self._atom_bounds:
            atom = self.atoms[number]
            ends = [atom.bounds]
            if atom.operation == "//":
                ends.append(_bounds_of_quotient(self, atom.left, atom.right))
            elif atom.operation in ("max", "min"):
                ends.append(_bounds_of_pair(self, atom.operation, atom.left, atom.right))
            low = [end[0] for end in ends] + [self._tightened.get((number, 0), (None,))[0]]
            high = [end[1] for end in ends] + [self._tightened.get((number, 1), (None,))[0]]
            self._atom_bounds[number] = (
                max((end for end in low if end is not None), default=None),
                min((end for end in high if end is not None), default=None),
            )
        return self._atom_bounds[number]

    def _decided(self, relation: str, terms: Terms) -> bool | None:
        if not terms:
            return True
        least, most = self.bounds_of(terms)
        if relation == "== 0":
            is_apart = (least is not None and least > 0) or (most is not None and most < 0)
            if is_apart or self._has_remainder(terms) or any(map(self._is_positive, (terms, _negative(terms)))):
                return False
            return None
        if least is not None and least >= 0:
            return True
        if most is not None and most < 0:
            return False
        if self._is_never_negative(terms, MOST_QUOTIENTS):
            return True
        return False if self._is_positive(_negative(terms)) else None

    def is_never_negative(self, terms: Terms) -> bool:
        """Return whether algebra shows that a polynomial is not negative for any sizes that pass the guards."""
        return self._decided(">= 0", self.reduced(terms)) is True

    def _is_positive(self, terms: Terms) -> bool:
        return self._is_never_negative(_sum(terms, terms_of(1), -1), MOST_QUOTIENTS)

    def _is_never_negative(self, terms: Terms, left: int) -> bool:
        """Return whether a polynomial is not negative, as ``x // c`` is ``(x - r) / c`` with ``r`` from 0 to ``c - 1``.

        It is linear in ``r``, so that it is least at one of these ends.

        Args:
            left: quotients that may be written so.
        """
        least, _ = self.bounds_of(terms)
        if not terms or (least is not None and least >= 0):
            return True
        extreme = self._extreme_of(terms) if left else None
        if extreme is not None:
            return self._is_extreme_never_negative(terms, extreme, left - 1)
        quotient = next(iter(self._quotients_of(terms)), None) if left else None
        if quotient is None:
            return False
        dividend, by = self._dividend_among(quotient, terms)
        others, factor = dict[Monomial, int](), dict[Monomial, int]()
        for product, coefficient in terms:
            rest = _without(product, (quotient,))
            if rest is None:
                others[product] = coefficient * by
            else:
                factor[rest] = coefficient
        ends = (_sum(dividend, terms_of(remainder), -1) for remainder in (0, by - 1))
        others_, factor_ = _canonical(others), _canonical(factor)
        return all(self._is_never_negative(_sum(others_, _product(each, factor_), 1), left - 1) for each in ends)

    def _dividend_among(self, quotient: int, terms: Terms) -> tuple[Terms, int]:
        """Return dividend and divisor, of another quotient if possible: ``x // 4`` is ``(x // 2) // 2``."""
        atom = self.atoms[quotient]
        found, by = atom.left, atom.right[0][1]
        for number in self._quotients_of(terms):
            other = self.atoms[number]
            part = other.right[0][1]
            added = _sum(atom.left, other.left, -1)
            is_constant = not added or (_is_number(added) and added[0][1] % part == 0)
            if number != quotient and is_constant and atom.right[0][1] % part == 0 and atom.right[0][1] // part < by:
                found = _sum((((number,), 1),), terms_of(added[0][1] // part if added else 0), 1)
                by = atom.right[0][1] // part
        return found, by

    def _extreme_of(self, terms: Terms) -> int | None:
        """Return a ``max`` or ``min`` atom that is not a factor of a product."""
        found = (product[0] for product, _ in terms if len(product) == 1)
        alone = next((each for each in found if self.atoms[each].operation in ("max", "min")), None)
        return None if alone is None or any(len(p) > 1 and alone in p for p, _ in terms) else alone

    def _is_extreme_never_negative(self, terms: Terms, number: int, left: int) -> bool:
        """Return whether a polynomial is not negative with either operand, or with one where that is enough."""
        atom, factor = self.atoms[number], dict(terms)[number,]
        rest = _sum(terms, (((number,), factor),), -1)
        found = (
            self._is_never_negative(_sum(rest, _product(each, terms_of(factor)), 1), left)
            for each in (atom.left, atom.right)
        )
        return any(found) if (atom.operation == "max") == (factor > 0) else all(found)

    def _quotients_of(self, terms: Terms) -> list[int]:
        """Return the atoms of a polynomial that divide by a number and are not squared.

        Quotients of others come before these, and large divisors before small ones.
        """
        numbers = {number for product, _ in terms for number in product}
        found = [
            number
            for number in numbers
            if self.atoms[number].operation == "//" and _is_number(self.atoms[number].right)
            if self.atoms[number].right[0][1] > 0 and all(product.count(number) < 2 for product, _ in terms)
        ]
        inner = {number: any(set(p) & numbers for p, _ in self.atoms[number].left) for number in found}
        return sorted(found, key=lambda number: (not inner[number], -self.atoms[number].right[0][1], number))

    @staticmethod
    def _has_remainder(terms: Terms) -> bool:
        """Return whether a polynomial cannot be 0: its constant is not a multiple of the coefficients' divisor."""
        constant = dict(terms).get((), 0)
        common = math.gcd(*(factor for product, factor in terms if product))
        return bool(common and constant % common)

    @staticmethod
    def is_number(relation: str, terms: Terms) -> bool:
        """Return whether a guard that holds fixes an expression of one dynamic size."""
        atoms = {number for product, _ in terms for number in product}
        return relation == "== 0" and len(atoms) == 1

    def text_of(self, terms: Terms) -> str:
        """Return a polynomial as Python writes it, over the names of dynamic sizes."""
        return self.written(terms, self.atom_text)

    def written(self, terms: Terms, atom_text: Callable[[int], str]) -> str:
        """Return a polynomial as Python writes it, with another text for every atom."""
        parts = []
        for product, factor in sorted(terms, key=lambda term: (not term[0], term)):
            names = [atom_text(number) for number in product]
            if abs(factor) != 1 or not names:
                names.append(str(abs(factor)))
            parts.append(("- " if factor < 0 else "+ ") + "*".join(names))
        text = " ".join(parts) or "0"
        return text[2:] if text.startswith("+ ") else text.replace("- ", "-", 1)

    def atom_text(self, number: int) -> str:
        """Return an atom as Python writes it."""
        atom = self.atoms[number]
        if atom.operation == "size":
            return atom.name
        left, right = self.text_of(atom.left), self.text_of(atom.right)
        return (
            f"{atom.operation}({left}, {right})" if atom.operation.isalpha() else f"(({left}){atom.operation}({right}))"
        )


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
        return self.env.made(_negative(self.env.reduced(self.terms)))

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
        return self.env.made(self.env.reduced(_sum(self.terms, terms_of(number), sign)))

    def __mul__(self, other: Any) -> Any:
        number = _as_size(other)
        if number is None:
            return self.specialise() * other if isinstance(other, float) else NotImplemented
        return self.env.made(self.env.reduced(_product(self.terms, terms_of(number))))

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
        return divided(self.env, *map(self.env.reduced, (self.terms, terms_of(number))))

    def __rfloordiv__(self, other: Any) -> Any:
        number = _as_size(other)
        return NotImplemented if number is None else divided(self.env, terms_of(number), self.env.reduced(self.terms))

    def __mod__(self, other: Any) -> Any:
        number = _as_size(other)
        if number is None:
            return self.specialise() % other if isinstance(other, float) else NotImplemented
        return _remainder(self.env, *map(self.env.reduced, (self.terms, terms_of(number))))

    def __rmod__(self, other: Any) -> Any:
        number = _as_size(other)
        return (
            NotImplemented if number is None else _remainder(self.env, terms_of(number), self.env.reduced(self.terms))
        )

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
        return self.env.decide("== 0", _sum(self.terms, terms_of(number), -1))

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
        difference = _sum(self.terms, terms_of(number), -1)
        return self.env.decide(">= 0", difference if sign > 0 else _negative(difference))


# Most quotients whose remainders a proof examines at both ends.
MOST_QUOTIENTS: Final = 4
# Powers of a size that are multiplied out.
_MOST_FACTORS: Final = 4
_OPERATIONS: Final[dict[str, Callable[[int, int], int]]] = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "max": max,
    "min": min,
}


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
        return not env.reduced(_sum(terms_of(a), terms_of(b), -1))
    return bool(a == b)


def is_at_most(a: int, b: int) -> bool:
    """Return whether a is at most b for all sizes that pass the guards; it records none."""
    env = _env_of((a, b))
    return a <= b if env is None else env.is_never_negative(_sum(terms_of(b), terms_of(a), -1))


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
    for each in values:
        if type(each) is not int:
            return _extreme("max", values)
    return max(values)


def smallest(*values: int) -> int:
    """Return the smallest of some sizes; ``min`` would record a guard on which one that is."""
    for each in values:
        if type(each) is not int:
            return _extreme("min", values)
    return min(values)


def _extreme(operation: str, values: Iterable[int]) -> int:
    left: list[int] = []
    for value in values:
        if any(_covers(operation, each, value) for each in left):
            continue
        left = [each for each in left if not _covers(operation, value, each)] + [value]
    env = _env_of(left)
    if env is None or len(left) == 1:
        return _OPERATIONS[operation](left[0], left[-1])
    ordered = sorted(left, key=lambda each: (isinstance(each, Dim), terms_of(each)))
    return reduce(lambda a, b: _pair(env, operation, a, b), ordered)


def _pair(env: ShapeEnv, operation: str, a: int, b: int) -> int:
    left, right = terms_of(a), terms_of(b)
    return env.operate(operation, left, right, _bounds_of_pair(env, operation, left, right))


def _bounds_of_pair(env: ShapeEnv, operation: str, left: Terms, right: Terms) -> Bounds:
    ends = [env.bounds_of(left), env.bounds_of(right)]
    known = [[end for end in (pair[k] for pair in ends) if end is not None] for k in (0, 1)]
    if operation == "max":
        return max(known[0], default=None), max(known[1]) if len(known[1]) == len(ends) else None
    return min(known[0]) if len(known[0]) == len(ends) else None, min(known[1], default=None)


def _narrowest(first: Bounds, second: Bounds) -> Bounds:
    """Return the intersection of two bounds."""
    low = [pair[0] for pair in (first, second) if pair[0] is not None]
    high = [pair[1] for pair in (first, second) if pair[1] is not None]
    return max(low, default=None), min(high, default=None)


def _covers(operation: str, a: int, b: int) -> bool:
    """Return whether the first is never less than the second (for ``max``), or never more (for ``min``)."""
    difference = _sum(terms_of(a), terms_of(b), -1)
    if operation == "min":
        difference = _negative(difference)
    env = _env_of((a, b))
    if env is None:
        return not difference or difference[0][1] >= 0
    return env.is_never_negative(difference)


def _env_of(values: Iterable[Any]) -> ShapeEnv | None:
    return next((each.env for each in values if isinstance(each, Dim)), None)


def terms_of(number: Any) -> Terms:
    """Return a size as a polynomial."""
    if isinstance(number, Dim):
        return number.terms
    return (((), number),) if number else ()


def _is_number(terms: Terms) -> bool:
    return len(terms) == 1 and not terms[0][0]


def divided(env: ShapeEnv, terms: Terms, by: Terms) -> int:
    """Return a polynomial divided by another, rounded down.

    Raises:
        ZeroDivisionError: the divisor is 0.
    """
    if not by:
        raise ZeroDivisionError("division of a size by 0")
    exact = _quotient(terms, by)
    if exact is not None:
        return env.made(exact)
    if len(by) > 1 or by[0][0]:
        return _divided_by_size(env, terms, by)
    return _divided_by_number(env, terms, by[0][1])


def _small_quotient(env: ShapeEnv, terms: Terms, by: Terms) -> int | None:
    """Return 0 or -1 if that is the quotient by a larger polynomial for all sizes; else None."""
    (least, most), (low, _) = env.bounds_of(terms), env.bounds_of(by)
    if low is None or least is None or most is None or most >= low or least < -low:
        return None
    return 0 if least >= 0 else -1 if most < 0 else None


def _divided_by_size(env: ShapeEnv, terms: Terms, by: Terms) -> int:
    low, _ = env.bounds_of(by)
    small = _small_quotient(env, terms, by)
    if small is not None:
        return small
    if low is not None and low > 0 and terms[-1][1] < 0:  # rounded down, as a division rounded up of what is positive
        positive = _sum(_sum(_negative(terms), by, 1), (((), 1),), -1)
        if positive and positive[-1][1] > 0:
            return -_divided_by_size(env, positive, by)
    return env.operate("//", terms, by, _bounds_of_quotient(env, terms, by))


def _divided_by_number(env: ShapeEnv, terms: Terms, by: int) -> int:
    """Divide by a number: whole multiples come out, a division inside becomes one with this."""
    if by < 0:
        return _divided_by_number(env, _negative(terms), -by)
    if terms[-1][1] < 0:  # rounded down, as a division rounded up of what is positive
        return -_divided_by_number(env, _sum(_negative(terms), (((), by - 1),), 1), by)
    whole = tuple((product, factor // by) for product, factor in terms if factor // by)
    rest = tuple((product, factor % by) for product, factor in terms if factor % by)
    least, most = env.bounds_of(rest)
    if not rest or (least is not None and most is not None and least >= 0 and most < by):
        return env.made(whole)
    common = math.gcd(by, *(factor for product, factor in rest if product))
    if common > 1:  # (g * x + c) // (g * b) == (x + c // g) // b
        rest, by = tuple((product, factor // common) for product, factor in rest if factor // common), by // common
    inner = _as_division(env, rest)
    if inner is not None:  # ((x // a) + c) // b == (x + c * a) // (a * b)
        dividend, divisor, added = inner
        found = _divided_by_number(env, _sum(dividend, (((), added * divisor),) if added else (), 1), by * divisor)
    else:
        by_terms: Terms = (((), by),)
        found = env.operate("//", rest, by_terms, _bounds_of_quotient(env, rest, by_terms))
    return env.made(_sum(terms_of(found), whole, 1))


def _as_division(env: ShapeEnv, terms: Terms) -> tuple[Terms, int, int] | None:
    """Return dividend, divisor and constant of a single division by a number plus a constant."""
    products = [(product, factor) for product, factor in terms if product]
    if len(products) != 1 or products[0][1] != 1 or len(products[0][0]) != 1:
        return None
    atom = env.atoms[products[0][0][0]]
    if atom.operation != "//" or len(atom.right) != 1 or atom.right[0][0]:
        return None
    return atom.left, atom.right[0][1], dict(terms).get((), 0)


def _bounds_of_quotient(env: ShapeEnv, terms: Terms, by: Terms) -> Bounds:
    (least, most), (low, high) = env.bounds_of(terms), env.bounds_of(by)
    if low is not None and low == high and low > 0:
        return None if least is None else least // low, None if most is None else most // low
    if low is None or low <= 0 or least is None or least < 0:
        return None, None
    return 0 if high is None else least // high, None if most is None else most // low


def _remainder(env: ShapeEnv, terms: Terms, by: Terms) -> int:
    if not by:
        raise ZeroDivisionError("remainder of a size by 0")
    if _quotient(terms, by) is not None:
        return 0
    if len(by) > 1 or by[0][0]:
        low, high = env.bounds_of(by)
        small = _small_quotient(env, terms, by)
        if small is not None:
            return env.made(_sum(terms, by, 1) if small < 0 else terms)
        is_positive = low is not None and low > 0
        return env.operate("%", terms, by, (0, None if high is None else high - 1) if is_positive else (None, None))
    number = by[0][1]
    rest = tuple((product, factor % number) for product, factor in terms if factor % number)
    least, most = env.bounds_of(rest)
    if not rest or (number > 0 and least is not None and most is not None and least >= 0 and most < number):
        return env.made(rest)
    return env.operate("%", rest, by, (0, number - 1) if number > 0 else (number + 1, 0))


def _quotient(terms: Terms, by: Terms) -> Terms | None:
    """Return the exact quotient of polynomials; None if there is a remainder."""
    left, found = dict(terms), dict[Monomial, int]()
    leading, coefficient = max(by, key=lambda term: _degree(term[0]))
    while left:
        product = max(left, key=_degree)
        rest, factor = _without(product, leading), left[product]
        if rest is None or factor % coefficient or len(found) > len(terms):
            return None
        found[rest] = factor // coefficient
        for monomial, each in _product(((rest, factor // coefficient),), by):
            _add_to(left, monomial, -each)
            if not left[monomial]:
                del left[monomial]
    return _canonical(found)


def _degree(product: Monomial) -> tuple[int, Monomial]:
    """Return a sort key of a monomial in an order that is compatible with multiplication."""
    return len(product), product


def _without(product: Monomial, part: Monomial) -> Monomial | None:
    left = list(product)
    for number in part:
        if number not in left:
            return None
        left.remove(number)
    return tuple(left)


def _sum(a: Terms, b: Terms, sign: int) -> Terms:
    total = dict(a)
    for product, factor in b:
        _add_to(total, product, sign * factor)
    return _canonical(total)


def _product(a: Terms, b: Terms) -> Terms:
    total: dict[Monomial, int] = {}
    for left, first in a:
        for right, second in b:
            _add_to(total, tuple(sorted(left + right)), first * second)
    return _canonical(total)


def _negative(terms: Terms) -> Terms:
    return tuple((product, -factor) for product, factor in terms)


def _canonical(total: dict[Monomial, int]) -> Terms:
    return tuple(sorted((product, factor) for product, factor in total.items() if factor))


def _add_to(total: dict[Monomial, int], product: Monomial, factor: int) -> None:
    total[product] = total.get(product, 0) + factor


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
