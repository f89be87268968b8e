"""Functions of tensors and numbers: their operand and result dtypes, and their computation.

With a tensor among the operands, PyTorch's promotion decides the dtype. float16 and bfloat16 are computed in float32
and every result is rounded. Numbers alone follow Python: 64-bit integers, which wrap, float64, complex128.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from engine.errors import ExpressionError
from engine.expression import arrays
from engine.expression.sizes import compute_sizes
from engine.ir.ratios import InexactError
from engine.ir.sizes import has_sizes, specialise_sizes
from engine.promotion import (
    Category,
    broadcast_shapes,
    cast,
    category,
    dtype_category,
    float_dtype,
    highest,
    is_reduced,
    real_dtype,
    result_type,
)
from engine.special import erf
from engine.tensor import UNKNOWN, Array, DType, Number, TensorSpec, dtype_name

_BOOL, _INTEGER, _FLOATING, _COMPLEX = Category
_ALL: Final = frozenset(Category)
_REAL: Final = _ALL - {_COMPLEX}
_NUMBERS: Final = _ALL - {_BOOL}
_REAL_NUMBERS: Final = _NUMBERS - {_COMPLEX}
_FLOAT32: Final[DType] = np.dtype(np.float32)
_PYTHON_DTYPES: Final[dict[Category, DType]] = {
    _BOOL: np.dtype(np.bool_),
    _INTEGER: np.dtype(np.int64),
    _FLOATING: np.dtype(np.float64),
    _COMPLEX: np.dtype(np.complex128),
}


def is_tensor(value: object) -> bool:
    """Return whether a value, or its description, is a tensor."""
    return isinstance(value, (np.ndarray, np.generic, TensorSpec))


def with_lists(args: Sequence[object]) -> tuple[object, ...]:
    """Return the arguments with lists of numbers as vectors if there is a tensor; lists with unknown numbers as specs.

    The converter writes a vector of whole numbers (a constant of an ONNX file) as a list and drops its dtype. So a
    list's dtype counts as little as a number's: with an int32 tensor it is int32, with a floating one floating.
    """
    if not any(isinstance(arg, (list, tuple)) for arg in args):
        return tuple(args)
    tensors = [arg for arg in args if is_tensor(arg)]
    return tuple(_vector(arg, tensors) if isinstance(arg, (list, tuple)) and arg else arg for arg in args)


def _is_unknown(arg: object) -> bool:
    return arg is UNKNOWN or (isinstance(arg, (list, tuple)) and any(item is UNKNOWN for item in arg))


def _vector(items: Sequence[object], tensors: Sequence[object]) -> object:
    if any(isinstance(item, (list, tuple)) or is_tensor(item) for item in items):
        return items  # the caller refuses it and shows its items
    dtype = result_type(*tensors, highest(map(category, items)))
    if any(item is UNKNOWN or isinstance(item, Category) or has_sizes(item) for item in items):
        return TensorSpec((len(items),), dtype)
    return np.array([cast(item, dtype) for item in items])  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementwiseFunction:
    """Function computed element by element.

    Args:
        name: as expressions spell it.
        arity: the one number of arguments, as a tuple.
        compute: takes arrays of one dtype, float32 for float16 and bfloat16.
        accepts: categories of the dtype it computes in.
        is_floating: integers and bools become the default float first; the result is never an integer.
        is_magnitude: a complex argument gives a real result.
        counts_bools: bools become int64 first.
        takes_bools: whether one operand may be a bool when another is not.
        keeps_numbers: a 0-dim operand of a float16 or bfloat16 tensor is not rounded to that dtype first.
    """

    name: str
    arity: tuple[int, ...]
    compute: Callable[..., Array]
    accepts: frozenset[Category] = _ALL
    is_floating: bool = False
    is_magnitude: bool = False
    counts_bools: bool = False
    takes_bools: bool = True
    keeps_numbers: bool = False

    def evaluate(self, *args: object) -> object:
        """Return the value: an array if any argument is one, else a Python number.

        numpy may warn of overflow and invalid values here; expressions run under ``np.errstate(all="ignore")``.

        Raises:
            ExpressionError: for unsupported dtypes, and for integers divided by 0.
            ShapeError: for arguments that are not numbers or do not broadcast.
        """
        if any(map(has_sizes, args)):
            return self._of_sizes(args)
        if not any(map(is_tensor, args)):
            return self._number(*args)
        args = with_lists(args)
        dtype = self.working_dtype(*args)
        operands = self._operands(args, dtype)
        broadcast_shapes(*[operand.shape for operand in operands])
        return cast(self._compute(args, operands), self.result_dtype(dtype))

    def infer(self, *args: object) -> object:
        """Return what is known of evaluate()'s result: a TensorSpec, a number, or the category of an unknown one.

        UNKNOWN may be a tensor of any shape and dtype, to which the others are broadcast, so nothing is known of the
        result.
        """
        if any(map(_is_unknown, args)):
            return UNKNOWN
        if any(map(is_tensor, args)):
            args = with_lists(args)
            dtype = self.result_dtype(self.working_dtype(*args))
            return TensorSpec(broadcast_shapes(*[getattr(arg, "shape", ()) for arg in args]), dtype)
        if any(isinstance(arg, Category) for arg in args):
            found = self._number_category(*args)
            return _FLOATING if self.is_magnitude and found is _COMPLEX else found
        return self._of_sizes(args) if any(map(has_sizes, args)) else self._number(*args)

    def _of_sizes(self, args: Sequence[object]) -> object:
        """Return the result for symbolic sizes; for their values where rounding decides."""
        try:
            return compute_sizes(self.name, args)
        except InexactError:
            return self.evaluate(*specialise_sizes(tuple(args)))

    def working_dtype(self, *args: object) -> DType:
        """Return the common dtype of the operands.

        Raises:
            ExpressionError: where PyTorch does not compute in that dtype.
        """
        dtype = result_type(*args)
        if self.is_floating:
            dtype = float_dtype(dtype)
        if self.counts_bools and dtype_category(dtype) is _BOOL:
            dtype = _PYTHON_DTYPES[_INTEGER]
        if dtype_category(dtype) not in self.accepts:
            raise self._refusal(dtype_name(dtype))
        if not self.takes_bools and any(category(arg) is _BOOL for arg in args):
            raise ExpressionError(f"{self.name} is not defined for bools", found="a bool", expected="numbers")
        return dtype

    def result_dtype(self, dtype: DType) -> DType:
        """Return the dtype of the result, from the one computed in."""
        return real_dtype(dtype) if self.is_magnitude else dtype

    def _operands(self, args: tuple[object, ...], dtype: DType) -> list[Array]:
        if not is_reduced(dtype):
            return [cast(arg, dtype) for arg in args]  # type: ignore[arg-type]
        rounded = (arg if self.keeps_numbers and np.ndim(arg) == 0 else cast(arg, dtype) for arg in args)  # type: ignore
        return [cast(arg, _FLOAT32) for arg in rounded]  # type: ignore[arg-type]

    def _compute(self, args: tuple[object, ...], operands: list[Array]) -> Array:
        return np.asarray(self.compute(*operands))

    def _number(self, *args: object) -> Number:
        dtype = _PYTHON_DTYPES[self._number_category(*args)]
        number: Number = self.compute(*(cast(arg, dtype) for arg in args)).item()  # type: ignore[arg-type]
        return number

    def _number_category(self, *args: object) -> Category:
        """Return the category of a result of Python numbers: True and False count as 1 and 0 except in pure logic."""
        found = highest(map(category, args))
        if self.is_floating and found is not _COMPLEX:
            found = _FLOATING
        if found is _BOOL and _FLOATING in self.accepts:
            found = _INTEGER
        if found not in self.accepts:
            raise self._refusal(f"{found.name.lower()} numbers")
        return found

    def _refusal(self, found: str) -> ExpressionError:
        names = ", ".join(each.name.lower() for each in Category if each in self.accepts)
        return ExpressionError(f"{self.name} is not defined for this dtype", found=found, expected=names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Power(ElementwiseFunction):
    """Function base ** exponent, with special rules for a Python number as the exponent."""

    def working_dtype(self, *args: object) -> DType:
        dtype = ElementwiseFunction.working_dtype(self, *args)
        exponent = args[1]
        if isinstance(exponent, int) and exponent < 0 and dtype_category(dtype) is _INTEGER:
            raise ExpressionError("integers have no negative powers", found=exponent, expected="0 or more")
        return dtype

    def _compute(self, args: tuple[object, ...], operands: list[Array]) -> Array:
        base, exponent = args
        shorter = not is_tensor(exponent) and getattr(base, "dtype", None) != np.float16  # like PyTorch
        compute = arrays.power_of_number if shorter else self.compute
        return np.asarray(compute(*operands))

    def _number_category(self, *args: object) -> Category:
        found = ElementwiseFunction._number_category(self, *args)
        exponent = args[1]
        return _FLOATING if found is _INTEGER and isinstance(exponent, int) and exponent < 0 else found


def _row(
    name: str, compute: Callable[..., Array], accepts: frozenset[Category] = _ALL, *, arity: int = 1, **rules: bool
) -> ElementwiseFunction:
    return ElementwiseFunction(name=name, arity=(arity,), compute=compute, accepts=accepts, **rules)


_floating: Final = partial(_row, is_floating=True)
_binary: Final = partial(_row, arity=2)


_ROWS: Final[tuple[ElementwiseFunction, ...]] = (
    _row("abs", np.abs, _NUMBERS, is_magnitude=True),
    _row("neg", np.negative, _NUMBERS),
    _row("sign", arrays.sign, _REAL),
    _row("square", np.square, counts_bools=True),
    _row("ceil", arrays.keeping_integers(np.ceil), _REAL_NUMBERS),
    _row("floor", arrays.keeping_integers(np.floor), _REAL_NUMBERS),
    _row("round", arrays.keeping_integers(np.rint), _REAL_NUMBERS),
    _row("trunc", arrays.keeping_integers(np.trunc), _REAL_NUMBERS),
    _floating("sqrt", np.sqrt),
    _floating("rsqrt", arrays.rsqrt),
    _floating("reciprocal", np.reciprocal),
    _floating("exp", np.exp),
    _floating("expm1", np.expm1),
    _floating("log", np.log),
    _floating("log10", np.log10),
    _floating("log1p", np.log1p),
    _floating("erf", erf, _REAL),
    _floating("sin", np.sin),
    _floating("cos", np.cos),
    _floating("tan", np.tan),
    _floating("asin", np.arcsin),
    _floating("acos", np.arccos),
    _floating("atan", np.arctan),
    _floating("sinh", np.sinh),
    _floating("cosh", np.cosh),
    _floating("tanh", np.tanh),
    _floating("asinh", np.arcsinh),
    _floating("acosh", np.arccosh),
    _floating("atanh", np.arctanh),
    _binary("add", np.add, _ALL),
    _binary("sub", np.subtract, _NUMBERS, takes_bools=False),
    _binary("mul", np.multiply, keeps_numbers=True),
    _binary("div", arrays.divide, is_floating=True, keeps_numbers=True),
    _binary("floor_divide", arrays.floor_divide, _REAL_NUMBERS, keeps_numbers=True),
    _binary("remainder", arrays.remainder, _REAL_NUMBERS),
    _binary("fmod", arrays.fmod, _REAL_NUMBERS),
    Power(name="pow", arity=(2,), compute=arrays.power, accepts=_NUMBERS),
    _binary("atan2", np.arctan2, _REAL, is_floating=True),
    _binary("logaddexp", arrays.logaddexp, frozenset({_FLOATING, _COMPLEX})),
    _binary("max", np.maximum, _REAL),
    _binary("min", np.minimum, _REAL),
    _binary("maximum", np.maximum, _REAL),
    _binary("minimum", np.minimum, _REAL),
    _binary("and", np.bitwise_and, frozenset({_BOOL, _INTEGER})),
    _binary("or", np.bitwise_or, frozenset({_BOOL, _INTEGER})),
    _binary("xor", np.bitwise_xor, frozenset({_BOOL, _INTEGER})),
    _binary("lshift", np.left_shift, frozenset({_INTEGER})),
    _binary("rshift", np.right_shift, frozenset({_INTEGER})),
)

ELEMENTWISE: Final[dict[str, ElementwiseFunction]] = {row.name: row for row in _ROWS}
"""Every elementwise function by name."""
