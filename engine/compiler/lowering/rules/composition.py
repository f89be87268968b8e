"""Operators that take several kernels: maps, reductions, memory between them, and a last map that others may join."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.compiler.codegen.host import Host
from engine.compiler.kernels.elements import Domain, make_elements
from engine.compiler.kernels.expr import Expr, Operand, names_of, substitute
from engine.compiler.kernels.functions.typed import DOUBLES
from engine.compiler.kernels.kernel import Epilogue
from engine.compiler.kernels.map import make_map
from engine.compiler.kernels.pooling.global_average import GlobalAverage, Of
from engine.compiler.kernels.rows.reduction import Mode, RowReduction
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Fused, Result, as_image, fuse_following, unfused
from engine.compiler.lowering.rules.elementwise.map import finished
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, dense_strides, derived
from engine.compiler.storage import View, channels_last, ordered, row_major
from engine.ir.strided import Strided
from engine.promotion import broadcast_sizes


@dataclass(slots=True)
class Composition:
    """Kernels of one operator, in order.

    Attributes:
        steps: the steps so far.
    """

    context: Context
    steps: list[KernelStep] = field(default_factory=list)

    def map(self, tree: Expr, *operands: View, target: View | None = None) -> View:
        """Compute an expression of broadcast operands, in new memory unless a target is given; return its view."""
        self._check(tree)
        sizes = broadcast_sizes(*(each.shape for each in operands))
        target = row_major(sizes, self.context.dtype) if target is None else target
        wide = [derived(each, each.meta.broadcast_to(sizes)) for each in operands]
        kernel = make_map(sizes, target.strides, [each.strides for each in wide], tree, self.context.host)
        self.steps.append(self.context.step(kernel, target, *wide))
        return target

    def typed(self, target: View, tree: Expr, *operands: View, domain: Domain | None = None) -> None:
        """Compute an expression of broadcast operands of any dtypes, stored in the target.

        Args:
            domain: number type of the computation; None for the context's dtype.
        """
        if domain is None:
            domain = "double" if self.context.dtype == np.float64 else "float"
        self.steps.append(elements_step(self.context, target, tree, operands, domain))

    def each(self, tree: Expr, x: View, *operands: View) -> View:
        """Compute an expression of a tensor and operands that broadcast to it, in new memory of its order."""
        return self.map(tree, x, *operands, target=ordered(x.shape, x.order, self.context.dtype))

    def reduce(self, x: View, axes: Sequence[int], mode: Mode) -> View:
        """Reduce some axes, which stay with size 1; return the view of the result."""
        target = row_major([1 if axis in axes else size for axis, size in enumerate(x.shape)], self.context.dtype)
        are_pixels = len(x.shape) in (3, 4) and [*axes] == [*range(2, len(x.shape))] and x.shape[1] > 1
        if mode != "product" and are_pixels and x.is_image:
            by_channel = derived(target, target.meta.reshape(x.shape[:2]))
            self.fold_pixels(derived(x, as_image(x.meta)), mode, by_channel)
            return target
        rows, copies = folded_rows(self.context, x, axes)
        self.steps.extend(copies)
        flat = derived(target, target.meta.reshape(-1))
        kernel = RowReduction.of(rows.shape, (rows.strides[0], flat.strides[0]), self.context.host, mode=mode)
        self.steps.append(self.context.step(kernel, rows, flat))
        return target

    def fold_pixels(self, image: View, of: Of, target: View, *given: View) -> None:
        """Reduce the pixels of a channels-last image (n, c, h, w) to (n, c).

        Args:
            given: means of the channels, for a variance.
        """
        kernel = fold_channels(image, derived(target, target.meta[:, :, None, None]), of, self.context.host)
        self.steps.append(self.context.step(kernel, image, *given, target))

    def rows(self, x: View, axes: Sequence[int]) -> View:
        """Return a tensor as (all other axes, elements along some axes), the latter contiguous."""
        kept = [axis for axis in range(len(x.shape)) if axis not in axes]
        rows, copies = self.context.rows(derived(x, x.meta.transpose([*kept, *axes])), len(axes))
        self.steps.extend(copies)
        return rows

    def shaped(self, x: View, sizes: Sequence[int]) -> View:
        """Return a tensor in another shape; copied if strides cannot describe it."""
        view = x.derive(x.meta.reshape(sizes))
        if view is None:
            copied = self.context.copied(x, self.steps)
            view = derived(copied, copied.meta.reshape(sizes))
        return view

    def as_result(self, x: View) -> View:
        """Return a reduced tensor in the shape of the first result, which may lack the axes of size 1."""
        return derived(x, x.meta.reshape(self.context.result_spec.sizes))

    def operand(self, index: int, sizes: Sequence[int]) -> View | None:
        """Return an argument of forward in these sizes; None where it is left out."""
        if self.context.argument(index) is None:
            return None
        x = self.context.tensor(index)
        if math.prod(x.shape) != math.prod(sizes):
            raise NotLoweredError("its weight or bias has an unusual shape")
        return self.shaped(x, sizes)

    def finish(self, tree: Expr, *operands: View) -> Lowered:
        """Compute the first result: an expression of operands that broadcast to it, with the operators that follow."""
        self._check(tree)
        operand = self.context.op.outputs[0]
        moved = substitute(tree, [Operand(index + 1) for index, _ in enumerate(operands)])
        lowered = finished(self.context, Fused(operand, moved, operands, (self.context.op.name,)))
        return Lowered(views=lowered.views, steps=[*self.steps, *lowered.steps], fusions=lowered.fusions)

    def _check(self, tree: Expr) -> None:
        if self.context.dtype == np.float64 and not names_of(tree) <= DOUBLES.keys():
            raise NotLoweredError("there is no float64 kernel for its functions")


def elements_step(
    context: Context, target: View, tree: Expr, operands: Sequence[View], domain: Domain, checked: Sequence[Expr] = ()
) -> KernelStep:
    """Return the step of an expression of operands of any dtypes that broadcast to the target; see ``Elements``."""
    seen = [target, *(derived(each, each.meta.broadcast_to(target.shape)) for each in operands)]
    strides, dtypes = [each.strides for each in seen], [each.dtype.name for each in seen]
    return context.step(
        make_elements(target.shape, strides, dtypes, tree, domain, context.lowering.host, checked), *seen
    )


def folded_rows(context: Context, x: View, axes: Sequence[int]) -> tuple[View, Sequence[KernelStep]]:
    """Return a tensor as (rows, elements along some axes), and the copy this may take.

    Elements of a row keep their memory order, because a reduction may read them in any order.
    """
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    moved = derived(x, x.meta.transpose([*kept, *(axis for axis in x.order if axis in axes)]))
    return context.rows(moved, len(axes))


def fold_channels(image: View, target: View, of: Of, host: Host, epilogue: Epilogue | None = None) -> GlobalAverage:
    """Return the kernel that reduces the pixels of a channels-last image (n, c, h, w) to (n, c, 1, 1)."""
    n, channels, rows, columns = image.shape
    return GlobalAverage(
        batch=n,
        rows=rows,
        columns=columns,
        channels=channels,
        source=dense_strides(image),
        target=dense_strides(target),
        of=of,
        host=host,
        epilogue=epilogue or Epilogue(),
    )


def as_batch(context: Context, spatial_rank: int) -> tuple[View, tuple[int, ...]]:
    """Return the first operand as (N, C, *S), with N = 1 where it has no batch, and the result's sizes along S.

    Raises:
        NotLoweredError: it has another rank.
    """
    x, sizes = context.tensor(0), context.result_spec.sizes
    if len(x.shape) == spatial_rank + 1:
        return derived(x, x.meta[None]), sizes[1:]
    if len(x.shape) != spatial_rank + 2:
        raise NotLoweredError("its operand is not a batch of images")
    return x, sizes[2:]


def fuse_images(context: Context, spatial_rank: int) -> Result:
    """Fuse the operators that follow a kernel of images, with or without a batch dimension; allocate the result."""
    if len(context.result_spec.sizes) == spatial_rank + 2:
        return context.fuse(as_image, is_image=True)
    found = fuse_following(context.lowering, unfused(context.op), _as_batch_of_one)
    whole = channels_last((1, *context.result_spec.sizes), dtype=context.dtype)
    return Result.of(found, derived(whole, whole.meta[0]), _as_batch_of_one, context.lowering.fault_flag)


def _as_batch_of_one(array: Strided) -> Strided:
    return as_image(array[None])
