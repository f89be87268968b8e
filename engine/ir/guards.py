"""Guards: decisions on symbolic sizes that hold for the inputs at hand, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from typing import Final, TypeAlias

from engine.ir.polynomials import (
    Monomial,
    Terms,
    accumulate,
    add,
    canonical,
    constant,
    is_number,
    multiply,
    negate,
    subtract,
)
from engine.ir.proofs import Proofs

Guard: TypeAlias = tuple[str, Terms]
"""Relation (``== 0`` or ``>= 0``) and polynomial."""
Guards: TypeAlias = Mapping[Guard, bool]
"""Guard -> whether it holds for the hints."""
NO_GUARDS: Final[Guards] = {}


class Decisions(Proofs):
    """Decisions by algebra, or else by the hints, which records a guard.

    Attributes:
        guards: the recorded decisions, without those that others imply.
    """

    def __init__(self) -> None:
        super().__init__()
        self.guards: dict[Guard, bool] = {}
        self._decisions: dict[Guard, bool] = {}  # also those that other guards imply
        self._multiples: dict[Terms, dict[tuple[int, int], Guard]] = {}
        self._equals: dict[int, Terms] = {}  # atom -> what it equals by a guard; none of these atoms is in there
        self._reduced: dict[Terms, Terms] = {}
        # (atom, 0 or 1) -> the guard that bounds its least or largest value
        self._bounding: dict[tuple[int, int], Guard] = {}

    def assume(self, guards: Guards) -> None:
        """Record the guards of another environment that concern only dynamic sizes of this one."""
        for relation, terms in guards:
            if all(number < len(self.names) for product, _ in terms for number in product):
                self.decide(relation, terms)

    def specialise(self, terms: Terms) -> int:
        """Return the value of a polynomial for the hints, and record a guard that it equals that."""
        value = self.hint_of(terms)
        self.decide("== 0", subtract(terms, constant(value)))
        return value

    def decide(self, relation: str, terms: Terms) -> bool:
        """Return whether a polynomial is 0 (``== 0``), or not negative (``>= 0``): by algebra, or with a guard."""
        terms = self.reduced(terms)
        return self._is_zero(terms) if relation == "== 0" else self._is_least_zero(terms)

    @staticmethod
    def is_number(relation: str, terms: Terms) -> bool:
        """Return whether a guard that holds fixes an expression of one dynamic size."""
        atoms = {number for product, _ in terms for number in product}
        return relation == "== 0" and len(atoms) == 1

    def reduced(self, terms: Terms) -> Terms:
        """Return a polynomial with each atom replaced by what it equals for all sizes that pass the guards."""
        if not self._equals:
            return terms
        if terms not in self._reduced:
            total: dict[Monomial, int] = {}
            for product, factor in terms:
                part = reduce(multiply, map(self._reduced_atom, product), constant(factor))
                for inner, coefficient in part:
                    accumulate(total, inner, coefficient)
            self._reduced[terms] = canonical(total)
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
            return self.extreme(atom.operation, map(self.limited, (left, right)))
        return (self.divided if atom.operation == "//" else self.remainder)(left, right)

    def _replace(self, terms: Terms) -> None:
        """Replace an atom from now on, where a guard says that a polynomial is 0: ``h == 2 * (h // 2)``."""
        alone = [(product[0], factor) for product, factor in terms if len(product) == 1 and abs(factor) == 1]
        for number, factor in sorted(alone, reverse=True):
            rest = subtract(terms, (((number,), factor),))
            equal = negate(rest) if factor > 0 else rest
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
        found = self.decided("== 0", terms)
        if found is not None:
            return found
        if len(terms) == 1 and terms != (((terms[0][0][0],), 1),):  # a product
            return any(self._is_zero((((number,), 1),)) for number in dict.fromkeys(terms[0][0]))
        ordered = self._as_order(terms)
        if ordered is not None:
            return self._is_least_zero(ordered)
        if terms[0][1] < 0:
            terms = negate(terms)
        least, most = self.bounds_of(terms) if self._as_multiple(terms) is None else (None, None)
        if least == 0:
            return not self._is_least_zero(subtract(terms, constant(1)))
        if most == 0:
            return not self._is_least_zero(subtract(negate(terms), constant(1)))
        return self._recorded("== 0", terms)

    def _as_order(self, terms: Terms) -> Terms | None:
        """Return the non-negative polynomial if ``max`` or ``min`` of two equals one of them: ``max(a, b) - a``."""
        for product, factor in terms:
            atom = self.atoms[product[0]] if len(product) == 1 and abs(factor) == 1 else None
            if atom is not None and atom.operation in ("max", "min"):
                rest = subtract(terms, ((product, factor),))
                other = negate(rest) if factor > 0 else rest
                if other in (atom.left, atom.right):
                    remaining = atom.right if other == atom.left else atom.left
                    return subtract(other, remaining) if atom.operation == "max" else subtract(remaining, other)
        return None

    def _is_least_zero(self, terms: Terms) -> bool:
        found = self.decided(">= 0", terms)
        if found is None:
            terms = self._as_bound(terms)
            found = self.decided(">= 0", terms)
        return self._recorded(">= 0", terms) if found is None else found

    def _as_bound(self, terms: Terms) -> Terms:
        """Return an equivalent non-negative polynomial, as a bound of a dynamic size if possible."""
        added = dict(terms).get((), 0)
        rest = [(product, factor) for product, factor in terms if product]
        common = math.gcd(*(factor for _, factor in rest))
        if common > 1:
            rest, added = [(product, factor // common) for product, factor in rest], added // common
        terms = canonical({(): added, **dict(rest)})
        if len(rest) > 1 or len(rest[0][0]) > 1:
            return terms
        atom, sign = self.atoms[rest[0][0][0]], rest[0][1]
        if atom.operation != "//" or not is_number(atom.right) or atom.right[0][1] < 0:
            return terms
        by = atom.right[0][1]  # x // by >= -added, or x // by <= added
        if sign > 0:
            return self._as_bound(add(atom.left, constant(added * by)))
        return self._as_bound(add(negate(atom.left), constant(added * by + by - 1)))

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
        whole, part = (self.divided(dividend, constant(each)) for each in (low, high))
        terms = subtract(whole, multiply(part, constant(high // low)))
        others[low, high] = "== 0", terms if terms[0][1] > 0 else negate(terms)
        self.guards[others[low, high]] = True

    def _as_multiple(self, terms: Terms) -> tuple[Terms, int, int] | None:
        """Return x, a and b of ``x // a == (b / a) * (x // b)``, None of another polynomial."""
        for (product, factor), (other, times) in (terms, terms[::-1]) if len(terms) == 2 else ():
            if abs(factor) != 1 or factor * times >= 0 or len(product) != 1 or len(other) != 1:
                continue
            whole, part = self.atoms[product[0]], self.atoms[other[0]]
            if part.operation != "//" or not is_number(part.right):
                continue
            high = part.right[0][1]
            is_divided = whole.operation == "//" and whole.left == part.left and is_number(whole.right)
            if not is_divided and ((product, 1),) != part.left:
                continue
            low = whole.right[0][1] if is_divided else 1
            if low > 0 and high == low * abs(times):
                return part.left, low, high
        return None

    def _narrow(self, key: Guard, holds: bool) -> None:
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
            earlier = self._bounding.get((number, side))
            if earlier is not None and earlier[0] == ">= 0":
                self.guards.pop(earlier, None)
            self._bounding[number, side] = key
            self.tighten(number, side, value)
