"""Maps of other dtypes than float32: comparisons, logic, selection by a mask, casts, integers, float64.

Operators whose dtypes are all float32 are expressions that other kernels can fuse; these are maps of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from engine.compiler.kernels.elements import COMPUTED, Domain
from engine.compiler.kernels.expr import Apply, Expr, Number, apply, names_of
from engine.compiler.kernels.functions.typed import RING
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.elementwise.typed_calls import (
    Calls,
    TypedArgument,
    TypedExpr,
    check_truncation,
    domain_of,
)
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError, convert
from engine.compiler.lowering.terms.term import EXPRESSION_RULES, PREPARATIONS, SINGLE
from engine.compiler.storage import FLOAT32, View, row_major
from engine.layers.creation.container import Expression
from engine.layers.definition.layer import Layer
from engine.layers.elementwise import comparison, logical
from engine.layers.elementwise.cast import To, TypeAs
from engine.layers.indexing.masking import MaskedFill, Where
from engine.promotion import is_reduced, result_type
from engine.tensor import DType, TensorSpec, dtype_name

_INT64, _FLOAT64 = np.dtype(np.int64), np.dtype(np.float64)


@kernels_for(comparison.Comparison)
def lower_comparison(context: Context) -> Lowered:
    """Lower a comparison of two numbers, in the dtype they promote to."""
    calls = Calls(context)
    operands = _operands(calls, 2)
    dtype = result_type(*(each.spec if isinstance(each, TypedExpr) else each for each in operands))
    return _map(calls, context.layer(comparison.Comparison).function, operands, dtype)


@kernels_for(comparison.Predicate)
def lower_predicate(context: Context) -> Lowered:
    """Lower a predicate of every element."""
    calls = Calls(context)
    operands = _operands(calls, 1)
    return _map(calls, context.layer(comparison.Predicate).function, operands, _dtypes(operands)[0])


@kernels_for(logical.Logical)
def lower_logic(context: Context) -> Lowered:
    """Lower a logical operator on two operands; what is not zero is true."""
    calls = Calls(context)
    operands = _operands(calls, 2)
    dtypes = {each if each.kind == "f" else _INT64 for each in _dtypes(operands) if each.kind != "b"}
    dtype = dtypes.pop() if len(dtypes) == 1 else _FLOAT64 if dtypes else _INT64
    return _map(calls, context.layer(logical.Logical).function, operands, dtype)


@kernels_for(logical.BitwiseNot)
def lower_bitwise_not(context: Context) -> Lowered:
    """Lower bitwise not, or logical not of booleans."""
    calls = Calls(context)
    operands = _operands(calls, 1)
    (dtype,) = _dtypes(operands)
    return _map(calls, "logical_not" if dtype.kind == "b" else partial(apply, "sub", -1), operands, dtype)


@kernels_for(Where, beside_maps=True)
def lower_where(context: Context) -> Lowered:
    """Lower a selection between two operands by a condition."""
    if len(context.bound.positional) != 3 or context.argument(1) is None or context.argument(2) is None:
        raise NotLoweredError("its shape is known only at run time")
    calls = Calls(context)
    return _map(calls, "where", _operands(calls, 3), _result(context).dtype)


@kernels_for(MaskedFill, beside_maps=True)
def lower_masked_fill(context: Context) -> Lowered:
    """Lower masked_fill: a value where the mask is on, else the input."""
    calls = Calls(context)
    x, mask, value = _operands(calls, 3)
    return _map(calls, "where", (mask, value, x), _result(context).dtype)


@kernels_for(To, TypeAs, beside_maps=True)
def lower_cast(context: Context) -> Lowered:
    """Lower a cast: fractions are truncated, integers wrap."""
    if (lowered := _low_precision_cast(context)) is not None:
        return lowered
    calls, result = Calls(context), _result(context)
    (x,) = _operands(calls, 1)
    if not isinstance(x, TypedExpr):
        raise NotLoweredError("its operand is a number")
    source = x.spec.dtype
    if source == result.dtype:
        return calls.lowered(x)
    check_truncation(source, result.dtype)
    is_cut = source.kind == "f" and result.dtype.kind in "iu"
    computed = source if is_cut or result.dtype.kind == "b" else result.dtype
    domain: Domain = "double" if _FLOAT64 in (source, result.dtype) else domain_of(computed)
    return calls.lowered(TypedExpr(x.tree, result, domain))


def _low_precision_cast(context: Context) -> Lowered | None:
    """Return the cast between float32 and a 16-bit float; None for other casts."""
    x, spec = context.argument(0), context.lowering.spec(context.op.outputs[0])
    if not isinstance(x, View) or spec is None or not spec.size:
        return None
    dtypes = (x.dtype, spec.dtype)
    if FLOAT32 not in dtypes or not any(map(is_reduced, dtypes)):
        return None
    target = context.allocate() if spec.dtype == FLOAT32 else row_major(spec.sizes, spec.dtype)
    return context.lowered(target, convert(x, target, [context.op.name], context.host))


def lower_typed(context: Context) -> Lowered:
    """Lower a layer with an expression rule for float32, in other dtypes."""
    layer, dtype, calls = context.layer(Layer), _result(context).dtype, Calls(context)
    unsuited = {*PREPARATIONS, *SINGLE}
    if type(layer) not in EXPRESSION_RULES or type(layer) in unsuited or context.bound.keywords:
        raise NotLoweredError(f"there are no {dtype_name(dtype)} kernels")
    given = context.arguments()
    operands = [calls.term(each) for each in given if each is not None]

    def tree_of(*terms: Expr) -> Expr | None:
        rest = iter(terms)
        tree = EXPRESSION_RULES[type(layer)](layer, *(None if each is None else next(rest) for each in given))
        return tree if tree is not None and _is_exact(tree, layer, dtype, operands) else None

    return _map(calls, tree_of, operands, dtype)


def _is_exact(tree: Expr, layer: Layer, dtype: DType, operands: Sequence[TypedArgument]) -> bool:
    """Return whether an expression that is rounded once gives the layer's result."""
    kinds = {each.spec.dtype for each in operands if isinstance(each, TypedExpr)}
    is_one = isinstance(tree, Apply) and not any(isinstance(each, Apply) for each in tree.arguments)
    if dtype.kind in "iu":
        is_whole = kinds == {dtype} and not _has_fractions(tree)
        return is_whole and (is_one or dtype.itemsize == 8 or names_of(tree) <= RING)
    # Narrower dtypes are promoted when they are loaded.
    is_fine = dtype.kind == "f" and all(each == dtype or each.kind in "iub" for each in kinds)
    return is_fine and (is_one or kinds == {dtype} or not isinstance(layer, Expression))


def _has_fractions(tree: Expr) -> bool:
    """Return whether a number in an expression is not an integer."""
    if isinstance(tree, Number):
        return not isinstance(tree.value, int)
    return isinstance(tree, Apply) and any(map(_has_fractions, tree.arguments))


def _operands(calls: Calls, count: int) -> list[TypedArgument]:
    """Return the first arguments of forward."""
    return [calls.term(calls.context.argument(index)) for index in range(count)]


def _dtypes(operands: Sequence[TypedArgument]) -> list[DType]:
    return [each.spec.dtype if isinstance(each, TypedExpr) else np.asarray(each).dtype for each in operands]


def _result(context: Context) -> TensorSpec:
    spec = context.lowering.spec(context.op.outputs[0])
    if spec is None or spec.dtype.name not in COMPUTED or not spec.size:
        raise NotLoweredError("its result is known only at run time, has no elements, or has an unusual dtype")
    return spec


def _map(
    calls: Calls, function: str | Callable[..., Expr | None], operands: Sequence[TypedArgument], dtype: DType
) -> Lowered:
    """Return the map that computes a function of operands in a dtype."""
    tree_of = partial(apply, function) if isinstance(function, str) else function
    return calls.lowered(calls.computed(tree_of, operands, dtype, _result(calls.context)))
