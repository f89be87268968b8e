"""Atoms: the variables of symbolic sizes, with their values for the inputs at hand."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from engine.ir.polynomials import Terms, constant

# Growth limits of expressions: no network comes near, and a file must not make compilation take very long.
MOST_TERMS: Final = 256
MOST_DEGREE: Final = 16
MOST_DEPTH: Final = 48
MOST_ATOMS: Final = 20_000

Bounds: TypeAlias = tuple[int | None, int | None]
"""Least and largest value of an expression; None if unknown."""
OPERATIONS: Final[dict[str, Callable[[int, int], int]]] = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "max": max,
    "min": min,
}


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


class Atoms(ABC):
    """Table of atoms; polynomials refer to them by number.

    Attributes:
        names: of the dynamic sizes, in the order they were added.
        atoms: by number.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.atoms: list[Atom] = []
        self._depths: list[int] = []
        self._numbers: dict[tuple[str, str, Terms, Terms], int] = {}

    @abstractmethod
    def specialise(self, terms: Terms) -> int:
        """Return the value of a polynomial for the hints, and record a guard that it equals that."""

    @abstractmethod
    def reduced(self, terms: Terms) -> Terms:
        """Return a polynomial with each atom replaced by what it equals for all sizes that pass the guards."""

    def add_atom(self, atom: Atom) -> Terms:
        """Return an atom as a polynomial; equal atoms are added once."""
        key = atom.operation, atom.name, atom.left, atom.right
        number = self._numbers.setdefault(key, len(self.atoms))
        if number == len(self.atoms):
            self.atoms.append(atom)
            self._depths.append(1 + self._depth(atom.left, atom.right))
        return (((number,), 1),)

    def _depth(self, *operands: Terms) -> int:
        return max((self._depths[k] for terms in operands for product, _ in terms for k in product), default=0)

    def operate(self, operation: str, left: Terms, right: Terms, bounds: Bounds) -> Terms:
        """Return the atom of an operation on two polynomials; a number where expressions would grow beyond limits."""
        if self._depth(left, right) >= MOST_DEPTH or len(self.atoms) >= MOST_ATOMS:
            return constant(OPERATIONS[operation](self.specialise(left), self.specialise(right)))
        hint = OPERATIONS[operation](self.hint_of(left), self.hint_of(right))
        return self.add_atom(Atom(operation, "", left, right, hint, bounds))

    def limited(self, terms: Terms) -> Terms:
        """Return a polynomial, or its value as a number if it would exceed the limits."""
        is_large = len(terms) > MOST_TERMS or max((len(product) for product, _ in terms), default=0) > MOST_DEGREE
        return constant(self.specialise(terms)) if is_large else terms

    def hint_of(self, terms: Terms) -> int:
        """Return the value of a polynomial for the hints of the dynamic sizes."""
        return sum(factor * math.prod(self.atoms[k].hint for k in product) for product, factor in terms)

    def text_of(self, terms: Terms) -> str:
        """Return a polynomial as Python writes it, over the names of dynamic sizes."""
        return self.written(terms, self._atom_text)

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

    def _atom_text(self, number: int) -> str:
        atom = self.atoms[number]
        if atom.operation == "size":
            return atom.name
        left, right = self.text_of(atom.left), self.text_of(atom.right)
        return (
            f"{atom.operation}({left}, {right})" if atom.operation.isalpha() else f"(({left}){atom.operation}({right}))"
        )
