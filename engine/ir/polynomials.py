"""Polynomials with integer coefficients, in a canonical form: equal ones are equal tuples."""

from __future__ import annotations

from typing import TypeAlias

Monomial: TypeAlias = tuple[int, ...]
"""A product of atoms by their numbers, in ascending order; the empty one is 1."""
Terms: TypeAlias = tuple[tuple[Monomial, int], ...]
"""A polynomial: monomials in ascending order, with coefficients that are not 0."""


def constant(number: int) -> Terms:
    """Return a number as a polynomial."""
    return (((), number),) if number else ()


def is_number(terms: Terms) -> bool:
    """Return whether a polynomial is a number other than 0."""
    return len(terms) == 1 and not terms[0][0]


def add(a: Terms, b: Terms, sign: int = 1) -> Terms:
    """Return the sum of two polynomials, the second one times a sign."""
    total = dict(a)
    for product, factor in b:
        accumulate(total, product, sign * factor)
    return canonical(total)


def subtract(a: Terms, b: Terms) -> Terms:
    """Return the difference of two polynomials."""
    return add(a, b, -1)


def negate(terms: Terms) -> Terms:
    """Return a polynomial times -1."""
    return tuple((product, -factor) for product, factor in terms)


def multiply(a: Terms, b: Terms) -> Terms:
    """Return the product of two polynomials."""
    total: dict[Monomial, int] = {}
    for left, first in a:
        for right, second in b:
            accumulate(total, tuple(sorted(left + right)), first * second)
    return canonical(total)


def divide_exactly(terms: Terms, by: Terms) -> Terms | None:
    """Return the exact quotient of polynomials; None if there is a remainder."""
    left, found = dict(terms), dict[Monomial, int]()
    leading, coefficient = max(by, key=lambda term: _degree(term[0]))
    while left:
        product = max(left, key=_degree)
        rest, factor = without(product, leading), left[product]
        if rest is None or factor % coefficient or len(found) > len(terms):
            return None
        found[rest] = factor // coefficient
        for monomial, each in multiply(((rest, factor // coefficient),), by):
            accumulate(left, monomial, -each)
            if not left[monomial]:
                del left[monomial]
    return canonical(found)


def _degree(product: Monomial) -> tuple[int, Monomial]:
    """Return a sort key of a monomial in an order that is compatible with multiplication."""
    return len(product), product


def without(product: Monomial, part: Monomial) -> Monomial | None:
    """Return a monomial divided by another; None if it is no multiple of it."""
    left = list(product)
    for number in part:
        if number not in left:
            return None
        left.remove(number)
    return tuple(left)


def canonical(total: dict[Monomial, int]) -> Terms:
    """Return the polynomial with these coefficients."""
    return tuple(sorted((product, factor) for product, factor in total.items() if factor))


def accumulate(total: dict[Monomial, int], product: Monomial, factor: int) -> None:
    """Add to the coefficient of a monomial."""
    total[product] = total.get(product, 0) + factor
