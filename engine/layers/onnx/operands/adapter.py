"""Operands and results of ONNX operators, which a pair may leave out without a trace."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.ir.dims import is_symbolic
from engine.layers.definition.layer import Annotations
from engine.layers.operands.axes import may_match
from engine.promotion import cast
from engine.tensor import Array, DType, Number, TensorSpec, format_shape


def present(candidates: Sequence[TensorSpec], annotations: Annotations) -> tuple[int, ...]:
    """Return the indices of the results that the outputs are.

    These are the first results if the file names its operands or does not annotate its outputs. Else the converter may
    have omitted unused results: then the first selection, in order, with the annotated dtypes and shapes, or ranks.
    """
    _check_count(candidates, annotations)
    fitting = [] if annotations.are_named else _fitting(candidates, annotations)
    return fitting[0] if fitting else tuple(range(len(annotations.outputs)))


def only_present(candidates: Sequence[TensorSpec], annotations: Annotations, names: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the results that the outputs are; refuse an ambiguous selection.

    Args:
        names: names of the results.

    Raises:
        ParameterError: the selection is ambiguous.
    """
    _check_count(candidates, annotations)
    if annotations.are_named:
        return tuple(range(len(annotations.outputs)))
    fitting = _fitting(candidates, annotations) or [*combinations(range(len(candidates)), len(annotations.outputs))]
    if len(fitting) > 1 and len(annotations.outputs) > 1:
        first, second = ([names[index] for index in chosen] for chosen in fitting[:2])
        found = f"{', '.join(first)} or {', '.join(second)}"
        expected = f"all of {', '.join(names)}, or the first alone: the converter leaves out the others without a trace"
        raise ParameterError("the file does not say which results the outputs are", found=found, expected=expected)
    return fitting[0]


def _check_count(candidates: Sequence[TensorSpec], annotations: Annotations) -> None:
    found = len(annotations.outputs)
    if found > len(candidates):
        raise ParameterError("too many outputs", found=found, expected=f"at most {len(candidates)}")


def _fitting(candidates: Sequence[TensorSpec], annotations: Annotations) -> list[tuple[int, ...]]:
    """Return the selections with the annotated dtypes and shapes, or else ranks."""
    outputs = annotations.outputs
    for suits in (_has_shape, _has_rank):
        found = []
        for chosen in combinations(range(len(candidates)), len(outputs)):
            pairs = zip((candidates[index] for index in chosen), outputs, strict=True)
            if all(note is None or suits(spec, note) for spec, note in pairs):
                found.append(chosen)
        if found:
            return found
    return []


def _has_shape(spec: TensorSpec, note: TensorSpec) -> bool:
    # The file has one value of a symbolic size.
    shape = tuple(None if is_symbolic(size) else size for size in spec.shape)
    return spec.dtype == note.dtype and may_match(shape, note.shape)


def _has_rank(spec: TensorSpec, note: TensorSpec) -> bool:
    return (spec.dtype, spec.rank) == (note.dtype, note.rank)


def selected(values: Sequence[Any], chosen: Sequence[int]) -> Any:
    """Return the chosen results: a tuple, or the only one."""
    return values[chosen[0]] if len(chosen) == 1 else tuple(values[index] for index in chosen)


def as_tensor(value: Array | Number | None, dtype: DType, name: str) -> Array:
    """Return an operand as a tensor; a one-element constant comes as a number without dtype.

    Raises:
        ShapeError: the converter has lost it.
    """
    check_given(value, name)
    return value if isinstance(value, np.ndarray) else cast(value, dtype)  # type: ignore[arg-type]


def check_given(value: object, name: str) -> None:
    """Refuse a constant that the converter wrote as None.

    Raises:
        ShapeError: it is None.
    """
    if value is None:
        raise ShapeError(
            f"the converter has lost the constant '{name}'",
            found="None",
            expected="a number; pnnx keeps single float32, int32, int64 and bool constants only",
        )


def shape_of(value: object) -> tuple[int | None, ...]:
    """Return the shape of an operand; () for a number."""
    return value.shape if isinstance(value, (TensorSpec, np.ndarray)) else ()


def dtype_of(value: object, default: DType) -> DType:
    """Return the dtype of an operand; the default for a number."""
    return value.dtype if isinstance(value, (TensorSpec, np.ndarray)) else default


def check_fits(fits: bool, name: str, found: Sequence[int | None], expected: str) -> None:
    """Refuse a shape that does not fit.

    Raises:
        ShapeError: it does not fit.
    """
    if not fits:
        raise ShapeError(f"{name} does not fit", found=format_shape(found), expected=expected)
