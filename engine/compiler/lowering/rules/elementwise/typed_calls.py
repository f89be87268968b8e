"""Functions of tensors of any dtypes, called one after the other, with the dtype promotion of PyTorch.

Calls that are computed in one dtype are one map. A result that is needed in another dtype is stored first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from engine.compiler.executable import NO_TENSOR
from engine.compiler.kernels.elements import COMPUTED, FUNCTIONS, Domain
from engine.compiler.kernels.expr import (
    Apply,
    Expr,
    Number,
    Operand,
    apply,
    is_moderate,
    names_of,
    operands_of,
    substitute,
)
from engine.compiler.kernels.functions.typed import DIVISIONS
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import elements_step
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError
from engine.compiler.lowering.terms.functions import LARGEST_POWER, power
from engine.compiler.lowering.terms.functions import function as real_function
from engine.compiler.storage import FLOAT32, View, like, row_major
from engine.errors import EngineError
from engine.expression.elementwise import ELEMENTWISE, ElementwiseFunction
from engine.ir.dims import is_same
from engine.promotion import cast
from engine.tensor import Array, DType, TensorSpec, dtype_name

_DOMAINS: dict[str, Domain] = {"float32": "float", "float64": "double"}


def domain_of(dtype: DType) -> Domain:
    """Return the number type that elements of a dtype are computed with.

    Raises:
        NotLoweredError: there is none.
    """
    if dtype.name not in COMPUTED:
        raise NotLoweredError(f"there are no {dtype_name(dtype)} kernels")
    return _DOMAINS.get(dtype.name, "i64")


def number_of(value: Array | bool | int | float, dtype: DType) -> bool | int | float:
    """Return a number in a dtype, as kernels write it."""
    number: bool | int | float = cast(value, dtype).item()
    return number


def target_of(context: Context, spec: TensorSpec, x: View) -> View:
    """Allocate a result; bytes get the layout of the images they come from, and floats that of the bytes."""
    if is_same(spec.sizes, x.shape) and x.is_channels_last and not x.is_row_major:
        if spec.dtype.itemsize == 1 and spec.dtype.kind in "iu":
            return like(x, spec.dtype)
        if spec.dtype == FLOAT32 and x.dtype.itemsize == 1 and x.dtype.kind in "iu":
            return context.allocate(is_image=True)
    return context.allocate() if spec.dtype == FLOAT32 else row_major(spec.sizes, spec.dtype)


_WORDS = {"maximum": "max", "minimum": "min", "fmax": "max", "fmin": "min"}


@dataclass(frozen=True, slots=True, eq=False)
class TypedExpr:
    """Tensor that is computed, or lies in memory.

    Args:
        tree: over the operands of its Calls.
        domain: number type of the tree; None for an operand.
        checked: conditions of which none may hold, else the fault flag is set.
        array: the elements, if they are known now.
    """

    tree: Expr
    spec: TensorSpec
    domain: Domain | None = None
    checked: tuple[Expr, ...] = ()
    array: Array | None = None


TypedArgument: TypeAlias = TypedExpr | bool | int | float


@dataclass(slots=True)
class Calls:
    """Kernels of one operator, in order.

    Attributes:
        views: operands of the trees.
        steps: the steps so far.
    """

    context: Context
    views: list[View] = field(default_factory=list)
    steps: list[KernelStep] = field(default_factory=list)

    def term(self, value: object) -> TypedArgument:
        """Return an argument of forward: a tensor in memory, or a number.

        Raises:
            NotLoweredError: it is neither.
        """
        array = value if isinstance(value, np.ndarray) else None
        if array is not None:
            value = self.context.lowering.stored(array)
        if isinstance(value, bool | int | float):
            return value
        if not isinstance(value, View) or self.context.lowering.quantises:
            raise NotLoweredError("an operand is not a tensor")
        domain_of(value.dtype)
        self.views.append(value)
        return TypedExpr(Operand(len(self.views) - 1), TensorSpec(value.shape, value.dtype), array=array)

    def call(
        self, function: str | ElementwiseFunction, *arguments: TypedArgument, kernel: str | None = None
    ) -> TypedArgument:
        """Return the result of a function.

        Args:
            function: a name of engine.expression, or a function of a layer.
            kernel: another function of integers, with the same promotion.

        Raises:
            NotLoweredError: there is no kernel for it, or it is known only at run time.
        """
        function = ELEMENTWISE[function] if isinstance(function, str) else function
        name, specs = function.name, [each.spec if isinstance(each, TypedExpr) else each for each in arguments]
        try:
            result = function.infer(*specs)
        except EngineError as error:
            raise NotLoweredError("the shapes of its operands do not match") from error
        if isinstance(result, bool | int | float):
            return result
        if not isinstance(result, TensorSpec):
            raise NotLoweredError("a number is known only at run time")
        dtype = function.working_dtype(*specs)

        def tree(*terms: Expr) -> Expr | None:
            return integer_function(kernel or name, terms) if dtype.kind in "iub" else self._real(name, terms, dtype)

        return self.computed(tree, arguments, dtype, result, divides=(kernel or name) in DIVISIONS)

    def computed(
        self,
        tree_of: Callable[..., Expr | None],
        arguments: Sequence[TypedArgument],
        dtype: DType,
        result: TensorSpec,
        *,
        divides: bool = False,
    ) -> TypedExpr:
        """Return an expression of arguments, which become a dtype first.

        Args:
            tree_of: returns it for their terms; None if there is none.
            divides: whether integers are divided by the second argument.

        Raises:
            NotLoweredError: there is no kernel for it.
        """
        domain = domain_of(dtype)
        parts = [self._for_domain(each, domain, result) for each in arguments]
        terms = [self._as_term(each, dtype) for each in parts]
        tree = tree_of(*terms)
        if tree is None or not is_moderate(tree) or not names_of(tree) <= FUNCTIONS[domain].keys():
            raise NotLoweredError(f"there are no {dtype_name(dtype)} kernels")
        checked = [each for part in parts if isinstance(part, TypedExpr) for each in part.checked]
        if dtype.kind in "iu" and divides:
            checked += _zero_checks(parts[1], terms[1])
        return TypedExpr(tree, result, domain, tuple(checked))

    def _for_domain(self, argument: TypedArgument, domain: Domain, result: TensorSpec) -> TypedArgument:
        """Return an argument that can be computed in the same map, or lies in memory."""
        if not isinstance(argument, TypedExpr) or argument.domain is None:
            return argument
        if argument.domain == domain and argument.spec.shape == result.shape:
            return argument
        return self._as_operand(argument)

    def _as_term(self, argument: TypedArgument, dtype: DType) -> Expr:
        """Return an argument in the promoted dtype."""
        if not isinstance(argument, TypedExpr):
            return Number(number_of(argument, dtype))
        if argument.array is not None and argument.array.size == 1:
            return Number(number_of(argument.array.reshape(()), dtype))
        mine = argument.spec.dtype
        if dtype.kind in "iub" and mine.kind == "f":
            raise NotLoweredError("there is no kernel that truncates fractions")
        if dtype.kind in "iub":
            is_exact = argument.domain is None or mine.itemsize == 8
            is_kept = is_exact and np.can_cast(mine, dtype, "safe")
            return argument.tree if is_kept else apply(f"as_{dtype_name(dtype)}", self._exact(argument))
        is_cast = argument.domain is None and mine.kind != "f"
        return self._rounded(argument.tree, dtype) if is_cast else argument.tree

    def _exact(self, argument: TypedExpr) -> Expr:
        """Return an argument whose narrow integers wrap, as the result of their own call does."""
        mine = argument.spec.dtype
        is_exact = argument.domain is None or mine.itemsize == 8 or mine.kind == "f"
        return argument.tree if is_exact else apply(f"as_{dtype_name(mine)}", argument.tree)

    def _real(self, name: str, terms: Sequence[Expr], dtype: DType) -> Expr | None:
        tree = real_function(name, *terms)
        return None if tree is None else self._rounded(tree, dtype)

    def _rounded(self, tree: Expr, dtype: DType) -> Expr:
        """Return a result rounded to 16 bits where PyTorch stores it so."""
        name = self.context.lowering.low_precision.rounded.get(self.context.op.outputs[0].name)
        return tree if name is None or dtype != FLOAT32 else apply(name, tree)

    def cast(self, argument: TypedArgument, dtype: DType) -> TypedExpr:
        """Return a tensor in another dtype.

        Raises:
            NotLoweredError: it is a number, or numpy's conversion differs from the processor's.
        """
        if not isinstance(argument, TypedExpr):
            raise NotLoweredError("its operand is a number")
        mine, spec = argument.spec.dtype, TensorSpec(argument.spec.shape, dtype)
        if mine == dtype:
            return argument
        check_truncation(mine, dtype)
        if mine.kind in "iub" and dtype.kind in "iub":
            domain = domain_of(dtype) if argument.domain is None else argument.domain
            if domain == domain_of(dtype):
                tree = apply(f"as_{dtype_name(dtype)}", self._exact(argument))
                return TypedExpr(tree, spec, domain, argument.checked)
        if mine.kind in "iub" and dtype.kind == "f":  # integers become floats when they are loaded
            loaded = argument if argument.domain is None else self._as_operand(argument)
            return TypedExpr(loaded.tree, spec, domain_of(dtype))
        domain = argument.domain or domain_of(mine)
        return self._as_operand(TypedExpr(self._exact(argument), spec, domain, argument.checked))

    def _as_operand(self, argument: TypedExpr) -> TypedExpr:
        """Return a tensor in memory, as an operand."""
        stored = self.term(self.stored(argument))
        assert isinstance(stored, TypedExpr)
        return stored

    def stored(self, part: TypedExpr, target: View | None = None) -> View:
        """Store a tensor in memory."""
        spec = part.spec
        if not spec.size:
            raise NotLoweredError("it has no elements")
        if part.domain is None:
            assert isinstance(part.tree, Operand)
            return self.views[part.tree.index]
        used = sorted(set().union(*(operands_of(each) for each in (part.tree, *part.checked))))
        if not used:
            raise NotLoweredError(NO_TENSOR)
        places = [Operand(used.index(k)) if k in used else Number(0) for k in range(len(self.views))]
        views = [self.views[k] for k in used]
        target = row_major(spec.sizes, spec.dtype) if target is None else target
        tree, checked = substitute(part.tree, places), [substitute(each, places) for each in part.checked]
        self.steps.append(elements_step(self.context, target, tree, views, part.domain, checked))
        return target

    def lowered(self, result: TypedArgument) -> Lowered:
        """Return the first result, with the steps that compute it.

        Raises:
            NotLoweredError: it differs from the operator's declared result.
        """
        output = self.context.op.outputs[0]
        spec = self.context.lowering.spec(output)
        if not isinstance(result, TypedExpr) or spec != result.spec:
            raise NotLoweredError("its result is known only at run time, or has another dtype")
        if result.domain is None:
            return Lowered(views={output.name: self.stored(result)}, steps=self.steps)
        first = min(operands_of(result.tree), default=0)
        target = target_of(self.context, result.spec, self.views[first])
        self.stored(result, target)
        return Lowered(views={output.name: target}, steps=self.steps)


def check_truncation(source: DType, target: DType) -> None:
    """Refuse a cast of fractions to unsigned integers: values out of range differ between processors.

    Raises:
        NotLoweredError: it is such a conversion.
    """
    if source.kind == "f" and target.kind == "u" and target.itemsize >= 4:
        raise NotLoweredError(f"there is no kernel that truncates fractions to {dtype_name(target)}")


def integer_function(name: str, terms: Sequence[Expr]) -> Expr | None:
    """Return a function of integers or booleans."""
    if name == "pow" and isinstance(exponent := terms[1], Number):
        if exponent.value < 0:
            return None
        if 0 < exponent.value <= LARGEST_POWER:
            return power(*terms)
    return Apply(_WORDS.get(name, name), tuple(terms))


def _zero_checks(divisor: TypedArgument, term: Expr) -> list[Expr]:
    """Return the condition that a divisor is 0; none if it is known not to be.

    Raises:
        NotLoweredError: it is known to be 0.
    """
    known = divisor.array if isinstance(divisor, TypedExpr) else np.asarray(divisor)
    if isinstance(term, Number):
        known = np.asarray(term.value)
    if known is None:
        return [apply("eq", term, 0)]
    if not known.all():
        raise NotLoweredError("it divides integers by 0")
    return []
