"""Values of symbolic sizes in a run: one generated function of the dynamic sizes, and one pass of numpy.

The function checks the guards and computes every product of atoms once, in Python's numbers. All polynomials are sums
of those, so numpy computes a thousand of them in microseconds; with exact numbers where 64 bits might overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from engine.ir.dims import LEAST_OPEN, ShapeEnv, terms_of
from engine.ir.polynomials import Monomial, Terms

_MOST: Final = 1 << 62


class Table:
    """Function from values of dynamic sizes to numbers.

    Args:
        env: the dynamic sizes, with all guards.
        values: the numbers, each an ``int`` or a ``Dim`` of these sizes, or its polynomial.

    Attributes:
        polynomials: the numbers as polynomials.
    """

    def __init__(self, env: ShapeEnv, values: Sequence[int | Terms]) -> None:
        self.polynomials = [each if isinstance(each, tuple) else terms_of(each) for each in values]
        polynomials = [each or (((), 0),) for each in self.polynomials]
        products: dict[Monomial, int] = {(): 0}
        for product, _ in (term for terms in polynomials for term in terms):
            products.setdefault(product, len(products))
        self._products = np.array([products[product] for terms in polynomials for product, _ in terms], np.intp)
        self._factors: NDArray[Any] = np.array([factor for terms in polynomials for _, factor in terms], object)
        counts = [len(terms) for terms in polynomials]
        self._starts = np.cumsum([0, *counts[:-1]], dtype=np.intp)[: len(counts)]
        sums = [sum(abs(factor) for _, factor in terms) for terms in polynomials]
        # With products less than this, no sum overflows 64 bits.
        self._most = _MOST // max([1, *sums])
        if max(sums, default=0) < _MOST:
            self._factors = self._factors.astype(np.int64)
        self._function = _Writer(env).function(list(products))

    def __call__(self, sizes: Sequence[int]) -> NDArray[Any] | None:
        """Return the numbers as 64-bit integers, or as Python's where those do not hold them; None at a failed guard.

        Args:
            sizes: values of the dynamic sizes, in the order of the environment.
        """
        try:
            products = self._function(sizes)
        except ZeroDivisionError:  # a divisor that is 0 for these sizes
            return None
        if products is None or not len(self._starts):
            return None if products is None else np.empty(0, np.int64)
        is_small = max(products) < self._most and min(products) > -self._most
        found = np.array(products, np.int64 if is_small else object)
        factors = self._factors if is_small else self._factors.astype(object)
        return np.add.reduceat(factors * found[self._products], self._starts)


class _Writer:
    """Generator of a Python function of dynamic sizes that computes every atom once."""

    def __init__(self, env: ShapeEnv) -> None:
        self._env = env
        self._lines: list[str] = []
        self._names: dict[int, str] = {}
        self._written: dict[Terms, str] = {}
        if env.names:
            self._lines.append(f"if min(v) < {LEAST_OPEN}: return None")
        for (relation, terms), found in env.guards.items():
            holds = f"{self._write(terms)} {relation}"
            self._lines.append(f"if {f'not {holds}' if found else holds}: return None")

    def function(self, products: Sequence[Monomial]) -> Callable[[Sequence[int]], list[int] | None]:
        """Return the function, which returns products of atoms."""
        results = ["*".join(map(self._atom, product)) or "1" for product in products]
        body = "\n    ".join([*self._lines, f"return [{', '.join(results)}]"])
        scope: dict[str, Any] = {}
        exec(f"def table(v):\n    {body}\n", scope)  # the text has no names of sizes in it
        return cast(Callable[[Sequence[int]], "list[int] | None"], scope["table"])

    def _write(self, terms: Terms) -> str:
        """Return the name or number of a polynomial."""
        if terms not in self._written:
            text = self._env.written(terms, self._atom)
            is_short = text.isidentifier() or text.lstrip("-").isdigit()
            self._written[terms] = text if is_short else f"t{len(self._written)}"
            if not is_short:
                self._lines.append(f"{self._written[terms]} = {text}")
        return self._written[terms]

    def _atom(self, number: int) -> str:
        if number not in self._names:
            atom = self._env.atoms[number]
            if atom.operation == "size":
                text = f"v[{self._env.names.index(atom.name)}]"
            else:
                left, right = self._write(atom.left), self._write(atom.right)
                is_call = atom.operation.isalpha()
                text = f"{atom.operation}({left}, {right})" if is_call else f"{left} {atom.operation} {right}"
            self._names[number] = f"a{number}"
            self._lines.append(f"a{number} = {text}")
        return self._names[number]
