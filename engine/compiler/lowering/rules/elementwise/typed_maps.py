"""Maps of other dtypes than float32: comparisons, logic, selection by a mask, casts, integers, float64.

Operators whose dtypes are all float32 are expressions that other kernels can fuse; these are maps of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine.compiler.kernels.elements import COMPUTED, FUNCTIONS, Domain
from engine.compiler.kernels.expr import Apply, Expr, Number, Operand, apply, is_moderate, names_of
from engine.compiler.kernels.functions.typed import RING
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import elements_step
from engine.compiler.lowering.rules.elementwise.map import lower_map
from engine.compiler.lowering.rules.elementwise.typed_calls import (
    check_truncation,
    domain_of,
    number_of,
    target_of,
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

# Largest int64.
_LARGEST = 2**63 - 1


def _is_map(context: Context) -> bool:
    return context.lowering.term(context.op) is not None


@kernels_for(comparison.Comparison)
def lower_comparison(context: Context) -> Lowered:
    """Lower a comparison of two numbers, in the dtype they promote to."""
    name, operands = context.layer(comparison.Comparison).function, operands_of(context, 2)
    dtype = result_type(*map(_promoted, operands))
    return typed_map(context, apply(name, *_operand_terms(operands, dtype)), operands, domain_of(dtype))


@kernels_for(comparison.Predicate)
def lower_predicate(context: Context) -> Lowered:
    """Lower a predicate of every element."""
    name, operands = context.layer(comparison.Predicate).function, operands_of(context, 1)
    return typed_map(context, apply(name, Operand(0)), operands, domain_of(_dtypes(operands)[0]))


@kernels_for(logical.Logical)
def lower_logic(context: Context) -> Lowered:
    """Lower a logical operator on two operands; what is not zero is true."""
    operands = operands_of(context, 2)
    kinds = {domain_of(each) for each in _dtypes(operands) if each.kind != "b"}
    domain: Domain = kinds.pop() if len(kinds) == 1 else "double" if kinds else "i64"
    name = context.layer(logical.Logical).function
    return typed_map(context, apply(name, *_operand_terms(operands)), operands, domain)


@kernels_for(logical.BitwiseNot)
def lower_bitwise_not(context: Context) -> Lowered:
    """Lower bitwise not, or logical not of booleans."""
    operands = operands_of(context, 1)
    is_truth = _dtypes(operands)[0].kind == "b"
    tree = apply("logical_not", Operand(0)) if is_truth else apply("sub", -1, Operand(0))
    return typed_map(context, tree, operands, "i64")


@kernels_for(Where)
def lower_where(context: Context) -> Lowered:
    """Lower a selection between two operands by a condition."""
    if _is_map(context):
        return lower_map(context)
    if len(context.bound.positional) != 3 or context.argument(1) is None or context.argument(2) is None:
        raise NotLoweredError("its shape is known only at run time")
    operands = operands_of(context, 3)
    return _chosen(context, operands)


@kernels_for(MaskedFill)
def lower_masked_fill(context: Context) -> Lowered:
    """Lower masked_fill: a value where the mask is on, else the input."""
    if _is_map(context):
        return lower_map(context)
    x, mask, value = operands_of(context, 3)
    return _chosen(context, [mask, value, x])


def _chosen(context: Context, operands: Sequence[View | float]) -> Lowered:
    dtype = _result(context).dtype
    condition, *values = operands
    _operand_terms(values, dtype)
    return typed_map(context, apply("where", *_operand_terms(operands)), operands, domain_of(dtype))


@kernels_for(To, TypeAs)
def lower_cast(context: Context) -> Lowered:
    """Lower a cast: fractions are truncated, integers wrap."""
    if _is_map(context):
        return lower_map(context)
    if (lowered := _low_precision_cast(context)) is not None:
        return lowered
    (x,), result = operands_of(context, 1), _result(context)
    if not isinstance(x, View):
        raise NotLoweredError("its operand is a number")
    if x.dtype == result.dtype:
        return Lowered(views={context.op.outputs[0].name: x})
    check_truncation(x.dtype, result.dtype)
    is_cut = x.dtype.kind == "f" and result.dtype.kind in "iu"
    source = x.dtype if is_cut or result.dtype.kind == "b" else result.dtype
    domain: Domain = "double" if np.dtype(np.float64) in (x.dtype, result.dtype) else domain_of(source)
    return typed_map(context, Operand(0), [x], domain, is_cast=True)


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
    if _is_map(context):
        return lower_map(context)
    layer, dtype = context.layer(Layer), _result(context).dtype
    unsuited = {*PREPARATIONS, *SINGLE}
    if type(layer) not in EXPRESSION_RULES or type(layer) in unsuited or context.bound.keywords:
        raise NotLoweredError(f"there are no {dtype_name(dtype)} kernels")
    operands = operands_of(context, len(context.bound.positional), may_lack=True)
    terms = iter(_operand_terms(operands, dtype))
    arguments = [None if each is None else next(terms) for each in context.arguments()]
    tree = EXPRESSION_RULES[type(layer)](layer, *arguments)
    kinds = {each.dtype for each in operands if isinstance(each, View)}
    is_one = isinstance(tree, Apply) and not any(isinstance(each, Apply) for each in tree.arguments)
    if dtype.kind in "iu":
        is_whole = kinds == {dtype} and not _has_fractions(tree or Number(0.5), dtype)
        is_fine = is_whole and (is_one or dtype.itemsize == 8 or names_of(tree or Number(0)) <= RING)
    else:  # narrower dtypes are promoted when they are loaded
        is_fine = dtype.kind == "f" and all(each == dtype or each.kind in "iub" for each in kinds)
        is_fine = is_fine and (is_one or kinds == {dtype} or not isinstance(layer, Expression))
    if tree is None or not is_fine:
        raise NotLoweredError(f"there are no {dtype_name(dtype)} kernels")
    return typed_map(context, tree, operands, domain_of(dtype))


def _has_fractions(tree: Expr, dtype: DType) -> bool:
    """Return whether a number in an integer expression is not an integer."""
    if isinstance(tree, Number):
        return dtype.kind in "iu" and not isinstance(tree.value, int)
    return isinstance(tree, Apply) and any(_has_fractions(each, dtype) for each in tree.arguments)


def operands_of(context: Context, count: int, *, may_lack: bool = False) -> list[View | float]:
    """Return arguments of forward: tensors in memory, and numbers; ``may_lack`` skips those left out."""
    if len(context.bound.positional) < count or context.lowering.quantises:
        raise NotLoweredError("its operands are not those of an element-wise kernel")
    found: list[View | float] = []
    for value in context.arguments()[:count]:
        if isinstance(value, np.ndarray):
            value = context.lowering.stored(value)
        if isinstance(value, View) and value.dtype.name in COMPUTED or isinstance(value, bool | int | float):
            found.append(value)
        elif isinstance(value, View):
            raise NotLoweredError(f"there are no {dtype_name(value.dtype)} kernels")
        elif value is not None or not may_lack:
            raise NotLoweredError("an operand is not a tensor")
    return found


def _promoted(operand: View | float) -> TensorSpec | float:
    return TensorSpec(operand.shape, operand.dtype) if isinstance(operand, View) else operand


def _dtypes(operands: Sequence[View | float]) -> list[DType]:
    return [each.dtype if isinstance(each, View) else np.asarray(each).dtype for each in operands]


def _operand_terms(operands: Sequence[View | float], dtype: DType | None = None) -> list[Expr]:
    """Return operands as terms; tensors are numbered.

    Args:
        dtype: the common dtype; numbers are converted to it, and tensors that would be truncated are refused.
    """
    terms: list[Expr] = []
    count = 0
    for each in operands:
        if isinstance(each, View):
            terms.append(Operand(count))
            count += 1
            if dtype is not None and dtype.kind in "iub" and not np.can_cast(each.dtype, dtype, "safe"):
                raise NotLoweredError("there is no kernel that wraps integers")
        else:
            terms.append(Number(each if dtype is None else number_of(each, dtype)))
    return terms


def _result(context: Context) -> TensorSpec:
    spec = context.lowering.spec(context.op.outputs[0])
    if spec is None or spec.dtype.name not in COMPUTED or not spec.size:
        raise NotLoweredError("its result is known only at run time, has no elements, or has an unusual dtype")
    return spec


def typed_map(
    context: Context, tree: Expr, operands: Sequence[View | float], domain: Domain, *, is_cast: bool = False
) -> Lowered:
    """Return the map that computes an expression of these operands; a cast may truncate fractions."""
    spec, views = _result(context), [each for each in operands if isinstance(each, View)]
    if not views or not is_moderate(tree) or not names_of(tree) <= FUNCTIONS[domain].keys():
        raise NotLoweredError(f"there are no {dtype_name(spec.dtype)} kernels")
    if not is_cast:
        _check_domain(domain, views, spec.dtype, tree)
    target = target_of(context, spec, views[0])
    return context.lowered(target, elements_step(context, target, tree, views, domain))


def _check_domain(domain: Domain, views: Sequence[View], result: DType, tree: Expr) -> None:
    """Refuse what would be truncated on the way into or out of the number type."""
    is_integer = domain == "i64"
    if is_integer and any(each.dtype.kind == "f" for each in views):
        raise NotLoweredError("there is no kernel that truncates fractions")
    if (is_integer and result.kind == "f") or (not is_integer and result.kind in "iu"):
        raise NotLoweredError("there is no kernel that truncates fractions")
    if is_integer and not all(_fits(number) for number in _numbers(tree)):
        raise NotLoweredError("a number does not fit its dtype")


def _fits(number: float) -> bool:
    return math.isfinite(number) and number == int(number) and abs(number) <= _LARGEST


def _numbers(tree: Expr) -> list[float]:
    if isinstance(tree, Number):
        return [tree.value]
    if isinstance(tree, Apply):
        return [number for each in tree.arguments for number in _numbers(each)]
    return []
