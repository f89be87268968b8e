"""Einstein summation by pairs of operands, as matrix products.

The converter renames labels and loses parts of equations, which are restored here:

* With one operand whose rank does not change, the output part is missing. The rest is equivalent in implicit mode:
  the output has every label that occurs once, sorted.
* With several operands, ``...`` is missing. An operand with more axes than labels had it in front, and so had the
  output, unless those axes are summed over by its annotated rank.

Labels are single characters; more than 18 of them go beyond ``z``, so any character except ``,``, ``-``, ``>`` and
``.`` is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.linear.matmul import matmul
from engine.layers.operands.axes import may_equal
from engine.layers.operands.precision import working_dtype
from engine.limits import show_shape
from engine.promotion import cast, promote_types
from engine.tensor import Array, Dim, DType, Shape, TensorSpec, format_shape, product

Labels = tuple[str, ...]

# Most labels of numpy's einsum.
_MOST_LABELS: Final = 52


@dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    """An equation without dots: one label for every axis of every operand and of the output.

    Axes under ``...`` are labelled ``.1``, ``.2``, ... counted from the last.
    """

    terms: tuple[Labels, ...]
    output: Labels


@lru_cache(maxsize=256)
def parse(text: str, ranks: tuple[int, ...], annotated_rank: int | None) -> Equation:
    """Return the equation with labels for the axes of operands with these ranks.

    Raises:
        ParameterError: when the equation is malformed.
        ShapeError: when it does not fit the operands.
    """
    left, arrow, right = text.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise ShapeError(f"equation '{text}' does not fit", found=f"{len(ranks)} operands", expected=len(parts))
    restored = "..." not in text
    terms = tuple(_label(part, rank, restored, text) for part, rank in zip(parts, ranks, strict=True))
    width = max([sum(label[0] == "." for label in term) for term in terms], default=0)
    dots = _dots(width)
    if not arrow:
        letters = [label for term in terms for label in term if label[0] != "."]
        return Equation(terms=terms, output=(*dots, *sorted(each for each in letters if letters.count(each) == 1)))
    if restored and width and annotated_rank != len(right):
        right = "..." + right
    output = _label(right, len(right.replace("...", "")) + width * ("..." in right), False, text)
    known = {label for term in terms for label in term}
    if len(set(output)) != len(output) or not known.issuperset(output):
        raise ParameterError(f"equation '{text}' has a wrong output part", found=right)
    return Equation(terms=terms, output=output)


def _label(part: str, rank: int, restored: bool, text: str) -> Labels:
    """Return one label for every axis of a term."""
    before, dots, after = part.partition("...")
    if {".", "-", ">"} & {*before, *after}:
        raise ParameterError(f"equation '{text}' is malformed", found=part)
    width = rank - len(before) - len(after)
    if width < 0 or (width > 0 and not dots and not restored):
        raise ShapeError(f"equation '{text}' does not fit", found=f"{rank} axes", expected=f"'{part}'")
    if not dots:
        before, after = "", before
    return (*before, *_dots(width), *after)


def _dots(width: int) -> Labels:
    return tuple(f".{k}" for k in range(width, 0, -1))


@register("torch.einsum")
class Einsum(Layer):
    """Sum of products of the operands over every label that is not in the output.

    Shapes:
        sizes of one label are equal or 1  ->  the sizes of the output's labels
    """

    equation: str
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, *operands: TensorSpec) -> TensorSpec:
        shapes = [operand.shape for operand in operands]
        equation = self.labelled(shapes)
        sizes = _sizes(equation, shapes)
        return TensorSpec(tuple(sizes[label] for label in equation.output), _common([o.dtype for o in operands]))

    def forward(self, *operands: Array) -> Array:
        equation = self.labelled([operand.shape for operand in operands])
        sizes = _sizes(equation, [operand.shape for operand in operands])
        dtype = _common([operand.dtype for operand in operands])
        arrays = [_expanded(cast(each, working_dtype(dtype)), term, sizes)
                  for each, term in zip(operands, equation.terms, strict=True)]  # fmt: skip
        with np.errstate(all="ignore"):
            return cast(_evaluate(equation, arrays), dtype)

    def flops(self, output: TensorSpec, *operands: object) -> int:
        shapes = [operand.shape for operand in operands if isinstance(operand, TensorSpec)]
        equation = self.labelled(shapes)
        sizes = _sizes(equation, shapes)
        total, seen = 0, equation.terms[0]
        for term in equation.terms[1:]:
            labels = {*seen, *term}
            total += 2 * (product(sizes[label] for label in labels) or 0)
            seen = tuple(labels)
        return total or product(shapes[0]) or 0

    def labelled(self, shapes: Sequence[Shape]) -> Equation:
        """Return the equation with a label for every axis of operands of these shapes.

        Raises:
            ParameterError: it is malformed.
            ShapeError: it does not fit them.
        """
        target = self.annotations.outputs[0]
        equation = parse(self.equation, tuple(map(len, shapes)), None if target is None else target.rank)
        if len({*chain.from_iterable(equation.terms)}) > _MOST_LABELS:
            raise ShapeError(
                "too many axes", found=", ".join(map(show_shape, shapes)), expected=f"{_MOST_LABELS} in all"
            )
        return equation


def _common(dtypes: Sequence[DType]) -> DType:
    common = dtypes[0]
    for dtype in dtypes[1:]:
        common = promote_types(common, dtype)
    return common


def _sizes(equation: Equation, shapes: Sequence[Shape]) -> dict[str, Dim]:
    """Return the size of every label: the one that is not 1."""
    sizes: dict[str, Dim] = {}
    for term, shape in zip(equation.terms, shapes, strict=True):
        for label, size in zip(term, shape, strict=True):
            known = sizes.get(label, 1)
            if not may_equal(known, size) and 1 not in (known, size):
                found = f"{known} and {size} in {', '.join(map(format_shape, shapes))}"
                raise ShapeError(f"sizes under label '{label}' differ", found=found)
            sizes[label] = size if known in (1, None) and size != 1 else known
    return sizes


def _expanded(array: Array, term: Labels, sizes: dict[str, Dim]) -> Array:
    return np.broadcast_to(array, [sizes[label] or 0 for label in term])


def _evaluate(equation: Equation, arrays: Sequence[Array]) -> Array:
    """Contract from left to right, summing over a label as soon as it is no longer needed."""
    result, labels = arrays[0], equation.terms[0]
    for k, (array, term) in enumerate(zip(arrays[1:], equation.terms[1:], strict=True), start=2):
        needed = {*equation.output, *[label for later in equation.terms[k:] for label in later]}
        result, labels = _contract(result, labels, array, term, needed)
    return _reduce(result, labels, equation.output)


def _contract(a: Array, a_labels: Labels, b: Array, b_labels: Labels, needed: set[str]) -> tuple[Array, Labels]:
    """Return the product of two operands, summed over labels that are no longer needed: batched matrix products."""
    shared = [label for label in dict.fromkeys(a_labels) if label in b_labels]
    batch = tuple(label for label in shared if label in needed)
    summed = tuple(label for label in shared if label not in needed)
    rows = tuple(label for label in dict.fromkeys(a_labels) if label not in shared and label in needed)
    columns = tuple(label for label in dict.fromkeys(b_labels) if label not in shared and label in needed)
    left, right = _reduce(a, a_labels, batch + rows + summed), _reduce(b, b_labels, batch + summed + columns)
    sizes = left.shape[: len(batch) + len(rows)] + right.shape[len(batch) + len(summed) :]
    nb, nr, ns = len(batch), len(rows), len(summed)
    depth, lead = product(right.shape[nb : nb + ns]) or 0, left.shape[:nb]
    left = left.reshape(*lead, product(left.shape[nb : nb + nr]) or 0, depth)
    right = right.reshape(*lead, depth, product(right.shape[nb + ns :]) or 0)
    stacked = matmul(left, right) if summed else left * right
    return stacked.reshape(sizes), batch + rows + columns


def _reduce(array: Array, labels: Labels, wanted: Labels) -> Array:
    """Return diagonals of repeated labels, sums over unwanted ones, in the wanted order; a view without sums."""
    if labels == wanted:
        return array
    numbers = {label: k for k, label in enumerate(dict.fromkeys(labels))}
    return np.asarray(np.einsum(array, [numbers[each] for each in labels], [numbers[each] for each in wanted]))
