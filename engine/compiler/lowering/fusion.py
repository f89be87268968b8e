"""Epilogue fusion: element-wise operators that join the kernel which computes their operand.

An activation needs no other operand. A residual sum or a gate product needs a second tensor, which must be computed
before: of two kernels whose results are added, the later one adds. ``Result`` says where the fused kernel stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from engine.compiler.kernels.expr import (
    RESULT,
    Apply,
    Expr,
    Number,
    Operand,
    apply,
    expensive,
    is_moderate,
    operands_of,
    substitute,
)
from engine.compiler.kernels.kernel import Epilogue, Kernel
from engine.compiler.kernels.numbers import FLOAT
from engine.compiler.kernels.quantising import simplified
from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, Pointer, image_strides, pointer
from engine.compiler.lowering.terms.term import CONVERTING
from engine.compiler.storage import FLOAT32, View
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.ir.strided import Strided, empty
from engine.layers.creation.container import Expression
from engine.passes import ACTIVATIONS, RESIDUALS
from engine.passes.support.byte_products import BYTES
from engine.tensor import BFLOAT16, Array, DType, TensorSpec

# Functions whose result is their argument, its opposite, or zero.
_KEEPING = ("relu", "neg", "abs")
_NARROW = (*BYTES, BFLOAT16)
ImageOf = Callable[[Strided], Strided]
"""Views an array of a result's shape as (n, c, h, w), as its kernel counts."""


@dataclass(frozen=True, slots=True)
class Fused:
    """Result of a kernel with the element-wise operators that follow it.

    Args:
        operand: what is finally stored.
        tree: operand 0 is the kernel's own result, operand k is ``views[k - 1]``.
        operators: names of all operators, the one that determines the kernel's kind first.
        fusions: names of fused operators, by the name of the pass.
    """

    operand: RuntimeOperand
    tree: Expr
    views: tuple[View, ...]
    operators: tuple[str, ...]
    fusions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def byte_source(self) -> View | None:
        """Return the tensor of bytes that a map reads, if it reads no other."""
        first, *others = self.views or (None,)
        if first is None or first.dtype not in BYTES or 0 in operands_of(self.tree):
            return None
        is_one = all(each is not None and each.storage is first.storage and each.meta is first.meta for each in others)
        return first if is_one else None


def unfused(op: RuntimeOperator, index: int = 0, tree: Expr = RESULT, views: Sequence[View] = ()) -> Fused:
    """Return the result of an operator without fused operators, an expression of its kernel's and of others."""
    return Fused(op.outputs[index], tree, tuple(views), (op.name,))


def fuse_following(lowering: Lowering, fused: Fused, as_image: ImageOf) -> Fused:
    """Fuse the element-wise operators that follow, as many as one kernel can hold."""
    if lowering.low_precision.rounded:
        fused = replace(fused, tree=_rounded(lowering, fused.operand, fused.tree))
    following = None if fused.operators[0] in lowering.unfused else _with_next(lowering, fused, as_image)
    coded: Fused | None = None
    while following is not None:
        before, fused = fused, following
        coded = before if _is_coded(lowering, before) else coded
        if coded is not None and _is_better_looked_up(coded, fused):
            return coded
        following = _with_next(lowering, fused, as_image)
        if following is None and _reads_bytes(lowering, before, fused):
            return before
    return fused


def _is_coded(lowering: Lowering, fused: Fused) -> bool:
    """Return whether a result is stored as bytes."""
    spec = lowering.spec(fused.operand)
    return spec is not None and spec.dtype in BYTES


def _is_better_looked_up(coded: Fused, fused: Fused) -> bool:
    """Return whether a kernel that makes bytes should not compute what follows: a table of bytes is faster."""
    if coded.byte_source is not None:
        return fused.byte_source is None
    return expensive(fused.tree) > expensive(coded.tree)


def _reads_bytes(lowering: Lowering, before: Fused, fused: Fused) -> bool:
    """Return whether bytes were dequantised last, and all that use the floats can read the bytes instead."""
    spec, users = lowering.spec(before.operand), fused.operand.consumers
    if spec is None or spec.dtype not in BYTES or fused.operand.name in lowering.outputs:
        return False
    return bool(users) and all(lowering.term(op) is not None for op in users)


def _with_next(lowering: Lowering, fused: Fused, as_image: ImageOf) -> Fused | None:
    """Return the result with the operator that follows it, or the two that do, such as x * sigmoid(x)."""
    users = list({id(op): op for op in fused.operand.consumers}.values())
    if not users or any(op.layer is None or len(op.outputs) != 1 for op in users) or len(users) > 2:
        return None
    if len(users) == 2:
        first, last = users if users[0].outputs[0] in users[1].inputs else reversed(users)
        if first.outputs[0].consumers != [last]:
            return None
        users = [first, last]
    known, views = {fused.operand.name: fused.tree}, list(fused.views)
    if not all(add_operator(lowering, op, known, views) for op in users):
        return None
    added, result = views[len(fused.views) :], users[-1].outputs[0]
    kind = RESIDUALS if added else ACTIVATIONS
    sizes = () if (spec := lowering.spec(result)) is None else spec.sizes
    if kind in lowering.options.passes_off or any(image_of(view, sizes, as_image) is None for view in added):
        return None
    names = tuple(op.name for op in users)
    fusions = {**fused.fusions, kind: (*fused.fusions.get(kind, ()), *names)}
    return Fused(result, known[result.name], tuple(views), (*fused.operators, *names), fusions)


def image_of(view: View, sizes: tuple[int, ...], as_image: ImageOf) -> View | None:
    """Return a view broadcast to the sizes of a result, as the kernel sees it; None if its order differs."""
    return view.derive(as_image(view.meta.broadcast_to(sizes)))


def add_operator(lowering: Lowering, op: RuntimeOperator, known: dict[str, Expr], views: list[View]) -> bool:
    """Add an operator's result to the known trees, and its further operands to the views; return whether it fits."""
    term = lowering.term(op)
    spec = lowering.spec(op.outputs[0])
    carried = [lowering.spec(each) for each in op.inputs if each.name in known]
    if term is None or spec is None or any(each is None or not _fits(op, each, spec) for each in carried):
        return False
    arguments: list[Expr] = []
    dtypes = (FLOAT32, *BYTES) if type(op.definition) in CONVERTING else (spec.dtype,)
    for each in term.inputs:
        if isinstance(each, int) and op.inputs[each].name in known:
            arguments.append(known[op.inputs[each].name])
            continue
        argument = _operand(lowering, op, each, views, dtypes)
        if argument is None:
            return False
        arguments.append(argument)
    tree = substitute(_rounded_within(lowering, op, term.tree), arguments)
    tree = simplified(tree) if type(op.definition) in CONVERTING else tree
    if not is_moderate(tree):
        return False
    known[op.outputs[0].name] = _rounded(lowering, op.outputs[0], tree)
    return True


def _fits(op: RuntimeOperator, operand: TensorSpec, result: TensorSpec) -> bool:
    """Return whether an element of a result comes from the same element of an operand, as a float."""
    is_converted = type(op.definition) in CONVERTING and {operand.dtype, result.dtype} <= {FLOAT32, *BYTES}
    return operand.shape == result.shape and (is_converted or operand.dtype == result.dtype)


def _rounded_within(lowering: Lowering, op: RuntimeOperator, tree: Expr) -> Expr:
    """Return an expression with every call rounded: PyTorch runs each as an operator of its own."""
    if not isinstance(op.definition, Expression) or not isinstance(tree, Apply):
        return tree
    arguments = (_rounded_within(lowering, op, each) for each in tree.arguments)
    return _rounded(lowering, op.outputs[0], Apply(tree.name, tuple(arguments)))


def _rounded(lowering: Lowering, operand: RuntimeOperand, tree: Expr) -> Expr:
    """Return a result rounded to 16 bits where PyTorch stores it so."""
    name = lowering.low_precision.rounded.get(operand.name)
    if name is None or _is_rounded(tree, name):
        return tree
    return apply(name, tree)


def _is_rounded(tree: Expr, name: str) -> bool:
    """Return whether an expression is rounded already, up to its sign."""
    while isinstance(tree, Apply) and tree.name in _KEEPING:
        tree = tree.arguments[0]
    return isinstance(tree, Apply) and tree.name == name


def _operand(
    lowering: Lowering, op: RuntimeOperator, each: int | Array, views: list[View], dtypes: Sequence[DType]
) -> Expr | None:
    """Return a number, or a new operand whose view is appended; None if it is not computed yet."""
    if isinstance(each, int) and (maker := lowering.deferred(op.inputs[each])) is not None:
        known: dict[str, Expr] = {}
        return known[op.inputs[each].name] if add_operator(lowering, maker, known, views) else None
    try:
        value = lowering.value(op.inputs[each]) if isinstance(each, int) else each
    except NotLoweredError:
        return None
    if isinstance(value, bool | int | float):
        return Number(float(value))
    if isinstance(value, np.ndarray):
        if value.size == 1:
            return Number(float(value.reshape(())))
        if value.dtype not in dtypes:
            return None
        value = lowering.stored(value)
    if not isinstance(value, View) or value.dtype not in dtypes:
        return None
    views.append(value)
    return Operand(len(views))


@dataclass(frozen=True, slots=True)
class Result:
    """Result about to be computed, or the part of it that one kernel computes.

    Args:
        fused: the operators it is the result of.
        target: memory of the whole result.
        image: memory that the kernel writes, as (n, c, h, w).
        operands: what the epilogue reads, in the same shape.
        fault_flag: word that kernels set when the result is void.
    """

    fused: Fused
    target: View
    image: View
    operands: tuple[View, ...]
    fault_flag: View

    @classmethod
    def of(cls, fused: Fused, target: View, as_image: ImageOf, fault_flag: View) -> Result:
        """Return the result as a kernel sees it, or the part that a kernel sees.

        Raises:
            NotLoweredError: it does not lie in the kernel's order.
        """
        image = target.derive(as_image(target.meta))
        operands = [image_of(view, target.shape, as_image) for view in fused.views]
        seen = tuple(view for view in operands if view is not None)
        if image is None or len(seen) < len(operands):
            raise NotLoweredError("the rows of its result are not contiguous")
        return cls(fused, target, image, seen, fault_flag)

    def part(self, as_image: ImageOf) -> Result:
        """Return the part that one of several kernels computes."""
        return Result.of(self.fused, self.target, as_image, self.fault_flag)

    @property
    def epilogue(self) -> Epilogue:
        """Return what the kernel does to every element before it stores it."""
        return Epilogue(self.fused.tree, tuple(map(image_strides, self.operands)), self.dtypes)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Return the dtypes of the target and the operands in memory, as an epilogue has them."""
        found = tuple(view.dtype.name if view.dtype in _NARROW else FLOAT for view in (self.image, *self.operands))
        return () if set(found) == {FLOAT} else found

    def step(
        self, kernel: Kernel, reads: Sequence[View] = (), *, after: Sequence[View] = (), origin: int = 0
    ) -> KernelStep:
        """Return the step of a kernel that stores here. Pointers: reads, target, epilogue operands, fault flag.

        Args:
            after: what it reads, too, if its pointers come after that of where it stores.
            origin: bytes from the first element of what it reads to the one it begins with.
        """
        fault_flag = [self.fault_flag] if kernel.sets_fault_flag else []
        first, *others = map(pointer, (*reads, self.image, *after, *self.operands, *fault_flag))
        moved = sum(view.meta.nbytes for view in (*reads, self.image, *after))
        pairs = zip(self.fused.views, self.operands, strict=True)
        return KernelStep(
            kernel=kernel,
            pointers=(Pointer(first.storage, first.offset + origin), *others),
            operators=self.fused.operators,
            bytes=moved + sum(min(whole.meta.nbytes, part.meta.nbytes) for whole, part in pairs),
            result=pointer(self.image),
        )

    def lowered(self, *steps: KernelStep) -> Lowered:
        """Return the result, with all fused operators and the steps that compute it."""
        return Lowered(views={self.fused.operand.name: self.target}, steps=steps, fusions=self.fused.fusions)


def as_image(array: Strided) -> Strided:
    """View (C, W), (C, H, W) or (N, C, W) as (N, C, H, W); the caller knows which of the two of rank 3 it is.

    Volumes (N, C, D, H, W) become their planes, (N * D, C, H, W). Planes that are not equally spaced give another
    memory.
    """
    if array.ndim == 5:
        return _planes(array)
    return array[:, :, None, :] if array.ndim == 3 else array


def lines_as_image(array: Strided, columns: int) -> Strided:
    """View (..., columns) as (1, columns, rows, 1): kernels of rows address their result so."""
    return array.reshape(-1, columns).transpose()[None, :, :, None]


def _planes(array: Strided) -> Strided:
    n, c, d, h, w = array.shape
    if n > 1 and d > 1 and array.strides[0] != d * array.strides[2]:
        return empty((n * d, c, h, w), array.dtype)
    # Strides stay valid along a dimension of size 1 too: its border lies there.
    steps = array.strides
    return array.as_strided((n * d, c, h, w), (steps[2] if d > 1 or n == 1 else steps[0], steps[1], *steps[3:]))
