"""An operator with operands and attributes, of which optional ones may be left out; and the table of all examples."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

Maker = Callable[[str, int], Iterator["Example"]]
MAKERS: Final[dict[tuple[str, str], Maker]] = {}


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand's value.

    Args:
        is_stored: whether it is an initializer; else an input of the graph.
    """

    value: Any
    is_optional: bool = False
    is_stored: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One call of an operator.

    Args:
        outputs: how many results it has.
        optional_outputs: how many of the last ones may be left out.
        valid: whether a subset of the operands, by their numbers, is one that the operator allows.
        steps: by how much integers of a result may differ.
    """

    inputs: tuple[Operand | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    type: str = ""
    version: int = 0
    domain: str = ""
    outputs: int = 1
    optional_outputs: int = 0
    valid: Callable[[frozenset[int]], bool] = lambda given: True
    steps: int = 0

    def __str__(self) -> str:
        given = ", ".join(
            "-" if each is None else f"{each.value.dtype}{list(each.value.shape)}" for each in self.inputs
        )
        shown = {key: value for key, value in self.attributes.items() if not hasattr(value, "node")}
        return f"{self.domain}{self.type}-{self.version}({given}) {shown} -> {self.outputs}"

    def variants(self) -> Iterator[tuple[Example, list[str]]]:
        """The example with every subset of its optional operands, and with every subset of its results.

        Returns:
            each with the names of its results, empty for those that are left out.
        """
        optional = [k for k, each in enumerate(self.inputs) if each is not None and each.is_optional]
        everything = [f"y{k}" for k in range(self.outputs)]
        whole: Example | None = None
        for gone in _subsets(optional):
            given = frozenset(k for k, each in enumerate(self.inputs) if each is not None) - frozenset(gone)
            if self.valid(given):
                found = replace(self, inputs=tuple(None if k in gone else each for k, each in enumerate(self.inputs)))
                whole = whole or found
                yield found, everything
        if whole is not None:
            yield from ((whole, names) for names in self._names(everything))

    def _names(self, everything: list[str]) -> Iterator[list[str]]:
        for gone in _subsets(range(self.outputs - self.optional_outputs, self.outputs)):
            given = ["" if k in gone else name for k, name in enumerate(everything)]
            while given and not given[-1]:
                given.pop()
            if given and gone:
                yield given

    def feeds(self) -> dict[str, Any]:
        """The values of the graph's inputs."""
        return {f"x{k}": each.value for k, each in enumerate(self.inputs) if each is not None and not each.is_stored}


def _subsets(items: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for count in range(len(items) + 1):
        yield from itertools.combinations(items, count)


def of(*types: str, domain: str = "") -> Callable[[Maker], Maker]:
    """Decorator: let a function make the examples of these operators, given the name and the version."""

    def add(maker: Maker) -> Maker:
        MAKERS.update({(domain, type): maker for type in types})
        return maker

    return add


def opt(value: Any) -> Operand:
    """An operand that may be left out."""
    given = value if isinstance(value, Operand) else Operand(np.asarray(value))
    return replace(given, is_optional=True)


def stored(value: Any) -> Operand:
    """An operand that is an initializer."""
    return Operand(np.asarray(value), is_stored=True)


def ex(*inputs: Any, outputs: int = 1, maybe: int = 0, valid: Any = None, steps: int = 0, **attributes: Any) -> Example:
    """An example; attributes that are None are left out, and so are operands."""
    given = tuple(each if each is None or isinstance(each, Operand) else Operand(np.asarray(each)) for each in inputs)
    kept = {key.rstrip("_"): value for key, value in attributes.items() if value is not None}
    more = {} if valid is None else {"valid": valid}
    return Example(inputs=given, attributes=kept, outputs=outputs, optional_outputs=maybe, steps=steps, **more)


class Draws:
    """Small random operands."""

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)

    def f(self, *shape: int, dtype: str = "float32") -> Any:
        """Floats, none of them special."""
        return self._random.standard_normal(shape).astype(dtype)

    def p(self, *shape: int) -> Any:
        """Positive floats."""
        return (self._random.random(shape) + 0.5).astype(np.float32)

    def i(self, *shape: int, low: int = -5, high: int = 6, dtype: str = "int64") -> Any:
        """Integers."""
        return self._random.integers(low, high, shape).astype(dtype)

    def u8(self, *shape: int) -> Any:
        """Bytes."""
        return self.i(*shape, low=0, high=256, dtype="uint8")

    def i8(self, *shape: int) -> Any:
        """Signed bytes."""
        return self.i(*shape, low=-128, high=128, dtype="int8")

    def b(self, *shape: int) -> Any:
        """Truths."""
        return self._random.random(shape) < 0.5
