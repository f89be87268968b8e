"""Bounds of symbolic sizes, and division of one by another; each needs the other."""

from __future__ import annotations

import math
from typing import cast

from engine.ir.atoms import Atoms, Bounds
from engine.ir.polynomials import (
    Monomial,
    Terms,
    accumulate,
    add,
    canonical,
    constant,
    divide_exactly,
    is_number,
    multiply,
    negate,
    subtract,
    without,
)


class Quotients(Atoms):
    """Atoms with bounds, and quotients and remainders of polynomials over them."""

    def __init__(self) -> None:
        super().__init__()
        self._bounds: dict[Terms, Bounds] = {}
        self._atom_bounds: dict[int, Bounds] = {}
        # (atom, 0 or 1) -> its least or largest value by a guard
        self._tightened: dict[tuple[int, int], int] = {}

    def tighten(self, number: int, side: int, value: int) -> None:
        """Bound an atom for all sizes that pass the guards.

        Args:
            side: 0 for its least value, 1 for its largest.
        """
        self._tightened[number, side] = value
        self._bounds.clear()
        self._atom_bounds.clear()

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
            for each in (terms, negate(terms))
        )
        return low, None if high is None else -high

    def _without_quotients(self, terms: Terms) -> Terms | None:
        """Return a polynomial with ``x - x % a`` for ``x // a * a``; None where there is no such product."""
        found: dict[Monomial, int] = {}
        is_opened = False
        for product, factor in terms:
            number = next((each for each in product if self._divides(each, factor)), None)
            if number is None:
                accumulate(found, product, factor)
                continue
            atom, is_opened = self.atoms[number], True
            rest = ((cast(Monomial, without(product, (number,))), factor // atom.right[0][1]),)
            dividend = subtract(atom.left, self.remainder(atom.left, atom.right))
            for monomial, each in multiply(rest, dividend):
                accumulate(found, monomial, each)
        return canonical(found) if is_opened else None

    def _divides(self, number: int, factor: int) -> bool:
        """Return whether an atom is a quotient by a number of which a factor is a multiple."""
        atom = self.atoms[number]
        return atom.operation == "//" and is_number(atom.right) and factor % atom.right[0][1] == 0

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
                    accumulate(grown, inner, coefficient * cast(int, start))
                    accumulate(grown, tuple(sorted((*inner, number * 2 + (sign < 0)))), coefficient * sign)
                parts = grown
            for inner, coefficient in parts.items():
                accumulate(shifted, inner, coefficient)
        if any(factor < 0 for product, factor in shifted.items() if product):
            return None
        return shifted[()]

    def bounds_of_atom(self, number: int) -> Bounds:
        """Return bounds of an atom, as far as its operands and the guards tell them."""
        if number not in self._atom_bounds:
            atom = self.atoms[number]
            found = _narrowest(atom.bounds, (self._tightened.get((number, 0)), self._tightened.get((number, 1))))
            if atom.operation == "//":
                found = _narrowest(found, self._bounds_of_quotient(atom.left, atom.right))
            elif atom.operation in ("max", "min"):
                found = _narrowest(found, self.bounds_of_pair(atom.operation, atom.left, atom.right))
            self._atom_bounds[number] = found
        return self._atom_bounds[number]

    def bounds_of_pair(self, operation: str, left: Terms, right: Terms) -> Bounds:
        """Return bounds of the largest or smallest of two polynomials."""
        ends = [self.bounds_of(left), self.bounds_of(right)]
        known = [[end for end in (pair[k] for pair in ends) if end is not None] for k in (0, 1)]
        if operation == "max":
            return max(known[0], default=None), max(known[1]) if len(known[1]) == len(ends) else None
        return min(known[0]) if len(known[0]) == len(ends) else None, min(known[1], default=None)

    def divided(self, terms: Terms, by: Terms) -> Terms:
        """Return a polynomial divided by another, rounded down.

        Raises:
            ZeroDivisionError: the divisor is 0.
        """
        if not by:
            raise ZeroDivisionError("division of a size by 0")
        exact = divide_exactly(terms, by)
        if exact is not None:
            return self.limited(exact)
        return self._divided_by_number(terms, by[0][1]) if is_number(by) else self._divided_by_size(terms, by)

    def remainder(self, terms: Terms, by: Terms) -> Terms:
        """Return the remainder of a polynomial divided by another, which has the sign of that.

        Raises:
            ZeroDivisionError: the divisor is 0.
        """
        if not by:
            raise ZeroDivisionError("remainder of a size by 0")
        if divide_exactly(terms, by) is not None:
            return ()
        if not is_number(by):
            low, high = self.bounds_of(by)
            small = self._small_quotient(terms, by)
            if small is not None:
                return self.limited(add(terms, by) if small < 0 else terms)
            is_positive = low is not None and low > 0
            bounds = (0, None if high is None else high - 1) if is_positive else (None, None)
            return self.operate("%", terms, by, bounds)
        number = by[0][1]
        rest = tuple((product, factor % number) for product, factor in terms if factor % number)
        if number > 0 and self._is_less(rest, number):
            return self.limited(rest)
        return self.operate("%", rest, by, (0, number - 1) if number > 0 else (number + 1, 0))

    def _is_less(self, terms: Terms, number: int) -> bool:
        """Return whether a polynomial is at least 0 and less than a number."""
        least, most = self.bounds_of(terms)
        return not terms or (least is not None and most is not None and least >= 0 and most < number)

    def _small_quotient(self, terms: Terms, by: Terms) -> int | None:
        """Return 0 or -1 if that is the quotient by a larger polynomial for all sizes; else None."""
        (least, most), (low, _) = self.bounds_of(terms), self.bounds_of(by)
        if low is None or least is None or most is None or most >= low or least < -low:
            return None
        return 0 if least >= 0 else -1 if most < 0 else None

    def _divided_by_size(self, terms: Terms, by: Terms) -> Terms:
        low, _ = self.bounds_of(by)
        small = self._small_quotient(terms, by)
        if small is not None:
            return constant(small)
        if low is not None and low > 0 and terms[-1][1] < 0:
            positive = subtract(add(negate(terms), by), constant(1))
            if positive and positive[-1][1] > 0:
                return self._negative(self._divided_by_size(positive, by))
        return self.operate("//", terms, by, self._bounds_of_quotient(terms, by))

    def _negative(self, quotient: Terms) -> Terms:
        """Return a quotient rounded down from the opposite one, which is positive and rounded up."""
        return negate(self.reduced(quotient))

    def _divided_by_number(self, terms: Terms, by: int) -> Terms:
        """Divide by a number: whole multiples come out, a division inside becomes one with this."""
        if by < 0:
            return self._divided_by_number(negate(terms), -by)
        if terms[-1][1] < 0:
            return self._negative(self._divided_by_number(add(negate(terms), constant(by - 1)), by))
        whole = tuple((product, factor // by) for product, factor in terms if factor // by)
        rest = tuple((product, factor % by) for product, factor in terms if factor % by)
        if self._is_less(rest, by):
            return self.limited(whole)
        common = math.gcd(by, *(factor for product, factor in rest if product))
        if common > 1:  # (g * x + c) // (g * b) == (x + c // g) // b
            rest, by = tuple((product, factor // common) for product, factor in rest if factor // common), by // common
        inner = self._as_division(rest)
        if inner is not None:  # ((x // a) + c) // b == (x + c * a) // (a * b)
            dividend, divisor, added = inner
            found = self._divided_by_number(add(dividend, constant(added * divisor)), by * divisor)
        else:
            found = self.operate("//", rest, constant(by), self._bounds_of_quotient(rest, constant(by)))
        return self.limited(add(found, whole))

    def _as_division(self, terms: Terms) -> tuple[Terms, int, int] | None:
        """Return dividend, divisor and constant of a single division by a number plus a constant."""
        products = [(product, factor) for product, factor in terms if product]
        if len(products) != 1 or products[0][1] != 1 or len(products[0][0]) != 1:
            return None
        atom = self.atoms[products[0][0][0]]
        if atom.operation != "//" or not is_number(atom.right):
            return None
        return atom.left, atom.right[0][1], dict(terms).get((), 0)

    def _bounds_of_quotient(self, terms: Terms, by: Terms) -> Bounds:
        (least, most), (low, high) = self.bounds_of(terms), self.bounds_of(by)
        if low is not None and low == high and low > 0:
            return None if least is None else least // low, None if most is None else most // low
        if low is None or low <= 0 or least is None or least < 0:
            return None, None
        return 0 if high is None else least // high, None if most is None else most // low


def _narrowest(first: Bounds, second: Bounds) -> Bounds:
    """Return the intersection of two bounds."""
    low = [pair[0] for pair in (first, second) if pair[0] is not None]
    high = [pair[1] for pair in (first, second) if pair[1] is not None]
    return max(low, default=None), min(high, default=None)
