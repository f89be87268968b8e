"""Proofs by algebra that a polynomial is 0, or not negative, for all values of the dynamic sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import reduce
from typing import Final

from engine.ir.polynomials import (
    Monomial,
    Terms,
    add,
    canonical,
    constant,
    is_number,
    multiply,
    negate,
    subtract,
    without,
)
from engine.ir.quotients import Quotients

# Most quotients whose remainders a proof examines at both ends.
MOST_QUOTIENTS: Final = 4


class Proofs(Quotients):
    """Atoms, and what algebra shows of polynomials over them; nothing here records a guard."""

    def is_never_negative(self, terms: Terms) -> bool:
        """Return whether algebra shows that a polynomial is not negative for any sizes that pass the guards."""
        return self.decided(">= 0", self.reduced(terms)) is True

    def extreme(self, operation: str, values: Iterable[Terms]) -> Terms:
        """Return the largest (``max``) or smallest (``min``) of some polynomials."""
        left: list[Terms] = []
        for value in values:
            if any(self._covers(operation, each, value) for each in left):
                continue
            left = [each for each in left if not self._covers(operation, value, each)] + [value]
        ordered = sorted(left, key=lambda each: (bool(each) and not is_number(each), each))
        return reduce(lambda a, b: self.operate(operation, a, b, self.bounds_of_pair(operation, a, b)), ordered)

    def _covers(self, operation: str, a: Terms, b: Terms) -> bool:
        """Return whether the first is never less than the second (for ``max``), or never more (for ``min``)."""
        return self.is_never_negative(subtract(a, b) if operation == "max" else subtract(b, a))

    def decided(self, relation: str, terms: Terms) -> bool | None:
        """Return whether a polynomial is 0 (``== 0``) or not negative (``>= 0``); None if algebra does not tell."""
        if not terms:
            return True
        least, most = self.bounds_of(terms)
        if relation == "== 0":
            is_apart = (least is not None and least > 0) or (most is not None and most < 0)
            if is_apart or _has_remainder(terms) or any(map(self._is_positive, (terms, negate(terms)))):
                return False
            return None
        if least is not None and least >= 0:
            return True
        if most is not None and most < 0:
            return False
        if self._is_never_negative(terms, MOST_QUOTIENTS):
            return True
        return False if self._is_positive(negate(terms)) else None

    def _is_positive(self, terms: Terms) -> bool:
        return self._is_never_negative(subtract(terms, constant(1)), MOST_QUOTIENTS)

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
            rest = without(product, (quotient,))
            if rest is None:
                others[product] = coefficient * by
            else:
                factor[rest] = coefficient
        ends = (subtract(dividend, constant(remainder)) for remainder in (0, by - 1))
        others_, factor_ = canonical(others), canonical(factor)
        return all(self._is_never_negative(add(others_, multiply(each, factor_)), left - 1) for each in ends)

    def _dividend_among(self, quotient: int, terms: Terms) -> tuple[Terms, int]:
        """Return dividend and divisor, of another quotient if possible: ``x // 4`` is ``(x // 2) // 2``."""
        atom = self.atoms[quotient]
        found, by = atom.left, atom.right[0][1]
        for number in self._quotients_of(terms):
            other = self.atoms[number]
            part = other.right[0][1]
            added = subtract(atom.left, other.left)
            is_constant = not added or (is_number(added) and added[0][1] % part == 0)
            if number != quotient and is_constant and atom.right[0][1] % part == 0 and atom.right[0][1] // part < by:
                found = add((((number,), 1),), constant(added[0][1] // part if added else 0))
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
        rest = subtract(terms, (((number,), factor),))
        found = (
            self._is_never_negative(add(rest, multiply(each, constant(factor))), left)
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
            if self.atoms[number].operation == "//" and is_number(self.atoms[number].right)
            if self.atoms[number].right[0][1] > 0 and all(product.count(number) < 2 for product, _ in terms)
        ]
        inner = {number: any(set(p) & numbers for p, _ in self.atoms[number].left) for number in found}
        return sorted(found, key=lambda number: (not inner[number], -self.atoms[number].right[0][1], number))


def _has_remainder(terms: Terms) -> bool:
    """Return whether a polynomial cannot be 0: its constant is not a multiple of the coefficients' divisor."""
    common = math.gcd(*(factor for product, factor in terms if product))
    return bool(common and dict(terms).get((), 0) % common)
