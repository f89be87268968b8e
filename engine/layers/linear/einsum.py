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

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Final, TypeAlias

from engine.errors import ParameterError, ShapeError
from engine.layers.creation.container import formula
from engine.layers.definition.composite import CallLayer, Composite, UnknownSizeError
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations
from engine.layers.definition.registry import register
from engine.layers.linear.matmul import Matmul
from engine.layers.operands.axes import may_equal
from engine.layers.reduction.reduction import Sum
from engine.layers.shape.diagonal import Diagonal
from engine.layers.shape.permute import Permute
from engine.layers.shape.shape import Flatten, Squeeze, Unflatten, Unsqueeze
from engine.limits import show_shape
from engine.promotion import promote_types
from engine.tensor import Array, Dim, DType, Shape, TensorSpec, format_shape

Labels = tuple[str, ...]

_MOST_LABELS: Final = 52
# Rows and columns from which a batch of products is as fast as one product with the batch as rows, and most labels of
# such a batch.
_BROAD, _MOST_BATCHES = 4, 2
_Term: TypeAlias = tuple[Any, Labels]
"""An operand, and the labels of its axes."""


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
class Einsum(Composite):
    """Sum of products of the operands over every label that is not in the output.

    Shapes:
        sizes of one label are equal, or 1 in some operands  ->  the sizes of the output's labels
    """

    equation: str
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, *operands: TensorSpec) -> TensorSpec:
        shapes = [operand.shape for operand in operands]
        equation = self.labelled(shapes)
        sizes = _sizes(equation, shapes)
        return TensorSpec(tuple(sizes[label] for label in equation.output), _common([o.dtype for o in operands]))

    def compose(self, call: CallLayer, *operands: Array) -> Any:
        shapes = [each.shape for each in operands]
        equation = self.labelled(shapes)
        sizes = _sizes(equation, shapes)
        plain = [_plain(call, *each, sizes) for each in zip(operands, equation.terms, strict=True)]
        used = Counter(chain.from_iterable(labels for _, labels in plain))
        terms = [_alone(call, each, {*equation.output, *(each for each in used if used[each] > 1)}) for each in plain]
        while len(terms) > 1:
            first, second, *later = terms
            needed = {*equation.output}.union(*(labels for _, labels in later))
            output = _kept((*first[1], *second[1]), needed) if later else equation.output
            terms = [_product(call, first, second, output, sizes), *later]
        ((result, found),) = terms
        return call(Permute(dims=tuple(found.index(label) for label in equation.output)), result)

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
        own: dict[str, Dim] = {}
        for label, size in zip(term, shape, strict=True):
            if not may_equal(own.setdefault(label, size), size):
                raise ShapeError(f"sizes under repeated label '{label}' differ", found=format_shape(shape))
            known = sizes.get(label, 1)
            if not may_equal(known, size) and 1 not in (known, size):
                found = f"{known} and {size} in {', '.join(map(format_shape, shapes))}"
                raise ShapeError(f"sizes under label '{label}' differ", found=found)
            sizes[label] = size if known in (1, None) and size != 1 else known
    return sizes


def _kept(labels: Labels, needed: Collection[str]) -> Labels:
    return tuple(label for label in dict.fromkeys(labels) if label in needed)


def _plain(call: CallLayer, x: Any, term: Labels, sizes: Mapping[str, Dim]) -> _Term:
    """Return an operand without axes of size 1 where others have more, and with the diagonals of repeated labels."""
    small = [axis for axis, label in enumerate(term) if x.shape[axis] == 1 != sizes[label]]
    is_unclear = [
        x.shape[axis] is None and (sizes[label] is not None or term.count(label) > 1) for axis, label in enumerate(term)
    ]
    if any(is_unclear) or any(sizes[term[axis]] is None for axis in small):
        raise UnknownSizeError("sizes of a label")
    if small:
        x, term = call(Squeeze(dim=tuple(small)), x), tuple(each for k, each in enumerate(term) if k not in small)
    while len({*term}) < len(term):
        label = next(each for each in term if term.count(each) > 1)
        first = term.index(label)
        second = term.index(label, first + 1)
        x = call(Diagonal(dim1=first, dim2=second), x)
        term = (*(each for k, each in enumerate(term) if k not in (first, second)), label)
    return x, term


def _alone(call: CallLayer, operand: _Term, others: Collection[str]) -> _Term:
    """Sum an operand over the labels that only it has."""
    x, term = operand
    lone = tuple(axis for axis, label in enumerate(term) if label not in others)
    if not lone:
        return operand
    return call(Sum(dim=lone, dtype=x.dtype), x), tuple(label for label in term if label in others)


def _product(call: CallLayer, first: _Term, second: _Term, output: Labels, sizes: Mapping[str, Dim]) -> _Term:
    """Return the product of two operands, summed over the labels that are not in the output."""
    summed = [label for label in first[1] if label not in output]
    if not summed:
        wide = [_arranged(call, each, output) for each in (first, second)]
        return formula(call, "mul(@0,@1)", *wide), output
    if output and output[-1] not in second[1]:  # columns are contiguous in the result
        first, second = second, first
    batch, rows, columns = _groups(first[1], second[1], output, sizes)
    left = _merged(call, _arranged(call, first, (*batch, *rows, *summed)), len(batch) + len(rows), len(summed))
    right = _merged(call, _arranged(call, second, (*batch, *summed, *columns)), len(batch), len(summed))
    right = _merged(call, right, len(batch) + 1, len(columns))
    if batch or not rows:  # otherwise any number of rows share the right matrix
        left = _merged(call, left, len(batch), len(rows))
    result = call(Matmul(), left, right)
    result = _split(call, result, len(result.shape) - 1, [sizes[label] for label in columns])
    if batch or not rows:
        result = _split(call, result, len(batch), [sizes[label] for label in rows])
    return result, (*batch, *rows, *columns)


def _groups(
    a: Labels, b: Labels, output: Labels, sizes: Mapping[str, Dim]
) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """Return the output's labels of the batch, of the rows and of the columns of a matrix product.

    Rows and columns are those of one operand only. Unless all rows share one matrix, only the last row and the columns
    behind it are taken, and all others are a batch, along which a matrix may be repeated; but not if these are few.
    """
    batch = [label for label in output if label in a and label in b]
    rows, columns = ([label for label in output if label in term and label not in batch] for term in (a, b))
    if (*rows, *columns) == output:
        return batch, rows, columns
    first = len(output)
    while first and output[first - 1] not in a:
        first -= 1
    begin = first - (first > 0 and output[first - 1] not in b)
    found = output[:begin], output[begin:first], output[first:]
    pairs = [(_extent(few, sizes), _extent(all_, sizes)) for few, all_ in zip(found[1:], (rows, columns), strict=True)]
    is_broad = all(few >= min(all_, _BROAD) for few, all_ in pairs)
    return found if is_broad and begin <= _MOST_BATCHES else (batch, rows, columns)


def _extent(labels: Sequence[str], sizes: Mapping[str, Dim]) -> float:
    return math.prod(math.inf if (size := sizes[label]) is None else size for label in labels)


def _arranged(call: CallLayer, operand: _Term, labels: Labels) -> Any:
    """Return an operand with an axis for each label, of size 1 for those it lacks."""
    x, term = operand
    order = tuple(term.index(label) for label in labels if label in term)
    x = x if order == tuple(range(len(order))) else call(Permute(dims=order), x)
    for axis, label in enumerate(labels):
        x = x if label in term else call(Unsqueeze(dim=(axis,)), x)
    return x


def _merged(call: CallLayer, x: Any, first: int, count: int) -> Any:
    """Merge so many axes to one, which is new if there are none."""
    if count == 1:
        return x
    return call(Flatten(start_dim=first, end_dim=first + count - 1) if count else Unsqueeze(dim=(first,)), x)


def _split(call: CallLayer, x: Any, axis: int, sizes: Sequence[Dim]) -> Any:
    """Split an axis into these sizes; none drop it."""
    if len(sizes) == 1:
        return x
    if sizes.count(None) > 1:
        raise UnknownSizeError("sizes of the rows or columns")
    if not sizes:
        return call(Squeeze(dim=(axis,)), x)
    return call(Unflatten(dim=axis, sizes=tuple(-1 if size is None else size for size in sizes)), x)
