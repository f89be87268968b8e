"""Context of a lowering rule: an operator, and what is known around it. Rules read it and return their result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from engine.compiler.codegen.host import Host
from engine.compiler.kernels.expr import RESULT, Expr
from engine.compiler.kernels.kernel import Kernel
from engine.compiler.lowering.fusion import Fused, ImageOf, Result, as_image, fuse_following, unfused
from engine.compiler.lowering.layout import NO_BORDER, Border
from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.steps import FLOAT64, KernelStep, Lowered, NotLoweredError, computable, copy, kernel_step
from engine.compiler.lowering.terms.term import with_known_parameters
from engine.compiler.storage import FLOAT32, View, channels_last, row_major
from engine.expression.tree import Input, List, Literal
from engine.graph.operator import RuntimeOperator
from engine.layers.creation.container import Expression, ListConstruct
from engine.layers.definition.bound import BoundLayer, Source
from engine.layers.definition.layer import Layer
from engine.tensor import Array, DType, TensorSpec, dtype_name

L = TypeVar("L", bound=Layer)


@dataclass(frozen=True, slots=True)
class Context:
    """Operator to be lowered.

    All methods raise NotLoweredError where kernels cannot compute the operator.

    Args:
        op: the operator.
        bound: its layer, with the source of each argument.
        lowering: state of the graph being lowered, read-only.
        dtype: of the tensors that kernels read and write: float32, float64, or bytes.
    """

    op: RuntimeOperator
    bound: BoundLayer
    lowering: Lowering
    dtype: DType = FLOAT32

    @property
    def host(self) -> Host:
        """Return the processor to make kernels for."""
        host = self.lowering.host
        return host.of_doubles if self.dtype == FLOAT64 else host

    @property
    def result_spec(self) -> TensorSpec:
        """Return the shape and dtype of the first result."""
        return computable(self.lowering.spec(self.op.outputs[0]), self.dtype)

    def layer(self, kind: type[L]) -> L:
        """Return the layer, with the parameters that arrive as operands filled in."""
        layer = with_known_parameters(self.bound, self.lowering.known(self.op))
        if layer is None:
            raise NotLoweredError("one of its parameters is known only at run time")
        assert isinstance(layer, kind)
        return layer

    def argument(self, index: int) -> View | object:
        """Return the view of a tensor argument of forward, or its value where it is known now."""
        if index >= len(self.bound.positional):
            return None
        return self._value(self.bound.positional[index])

    def _value(self, source: Source) -> View | object:
        return source.constant if source.index is None else self.lowering.value(self.op.inputs[source.index])

    def items(self, index: int) -> object:
        """Return an argument of forward that may be a list of computed values."""
        source = self.bound.positional[index].index
        maker = None if source is None else self.op.inputs[source].producer
        definition = None if maker is None else maker.definition
        if maker is not None and isinstance(definition, ListConstruct):
            return [self.lowering.value(each) for each in maker.inputs]
        if maker is not None and isinstance(definition, Expression) and isinstance(definition.tree, List):
            return [self._item(maker, each) for each in definition.tree.items]
        return self.argument(index)

    def _item(self, maker: RuntimeOperator, node: object) -> object:
        """Return an item of a list that is written as an expression."""
        if isinstance(node, Literal):
            return node.value
        if isinstance(node, Input):
            return self.lowering.value(maker.inputs[node.index])
        raise NotLoweredError("an item of a list is an expression")

    def arguments(self) -> list[View | object]:
        """Return all arguments of forward, each as ``argument`` does."""
        return [self.argument(index) for index, _ in enumerate(self.bound.positional)]

    def tensor(self, index: int) -> View:
        """Return a tensor argument of the context's dtype, in memory."""
        return self.stored(self.argument(index))

    def stored(self, value: View | object) -> View:
        """Return a value as a tensor of the context's dtype in memory; a constant is stored."""
        if isinstance(value, np.ndarray):
            value = self.lowering.stored(value)
        if not isinstance(value, View):
            raise NotLoweredError("an operand is not a tensor")
        if value.dtype != self.dtype:
            raise NotLoweredError(f"there are no {dtype_name(value.dtype)} kernels")
        if value.meta.size == 0:
            raise NotLoweredError("an operand has no elements")
        return value

    def elements(self, index: int) -> View:
        """Return a tensor argument of any dtype, in memory, to be moved."""
        value = self.argument(index)
        if isinstance(value, np.ndarray):
            value = self.lowering.stored(value)
        if not isinstance(value, View) or self.lowering.quantises:
            raise NotLoweredError("an operand is not a tensor")
        if value.meta.size == 0:
            raise NotLoweredError("an operand has no elements")
        return value

    def allocate_like(self, x: View, *, is_image: bool | None = None) -> View:
        """Allocate the first result, with the dtype of ``x``."""
        spec = self.lowering.spec(self.op.outputs[0])
        if x.dtype == FLOAT32 or spec is None or spec.dtype != x.dtype or spec.size == 0:
            return self.allocate(is_image=is_image)
        return row_major(spec.sizes, spec.dtype)

    def weight(self, index: int) -> Array:
        """Return an argument of the context's dtype whose value is known now."""
        return self._known(self.argument(index))

    def weights(self, further: Sequence[DType] = ()) -> dict[str, Array]:
        """Return all keyword arguments of the context's dtype, or of further ones, whose values are known now."""
        return {name: self._known(self._value(source), further) for name, source in self.bound.keywords.items()}

    def _known(self, value: View | object, further: Sequence[DType] = ()) -> Array:
        if not isinstance(value, np.ndarray):
            raise NotLoweredError("its weights are not constant")
        if value.dtype not in (self.dtype, *further):
            raise NotLoweredError(f"its weights are {value.dtype.name}")
        return value

    def optional_weight(self, index: int) -> Array | None:
        """Return the weight, or None where it is left out."""
        return None if self.argument(index) is None else self.weight(index)

    def image(self, x: View, border: Border = NO_BORDER, fill: int = 0) -> tuple[View, Sequence[KernelStep]]:
        """Return a tensor as (n, c, h, w) channels-last with at least this border, and the copy this may take.

        Args:
            fill: value of each byte of the border.
        """
        is_one = x.has_border(border, fill) and (x.strides[1] == 1 or x.shape[1] == 1)
        image = x.derive(as_image(x.meta)) if is_one else None
        if image is not None:
            return image, ()
        source = channels_last(x.shape, border, x.dtype, fill)
        image = source.derive(as_image(source.meta))
        if image is None:
            raise NotLoweredError("its operand is not an image")
        return image, [self.copy(x, source)]

    def rows(self, x: View, count: int = 1) -> tuple[View, Sequence[KernelStep]]:
        """Return a tensor as (rows, contiguous elements of the last ``count`` dimensions), and the copy if needed."""
        rows = as_rows(x, count)
        if rows is not None:
            return rows, ()
        target = row_major(x.shape, x.dtype)
        copied = as_rows(target, count)
        assert copied is not None
        return copied, [self.copy(x, target)]

    def copy(self, source: View, target: View) -> KernelStep:
        """Return the step of a copy between views of one shape."""
        return copy(source, target, [self.op.name], self.lowering.host)

    def copied(self, source: View, steps: list[KernelStep]) -> View:
        """Return a contiguous copy of a view, and add the step that makes it."""
        target = row_major(source.shape, source.dtype)
        steps.append(self.copy(source, target))
        return target

    def allocate(self, *, is_image: bool | None = None) -> View:
        """Allocate the first result; channels-last where its neighbours are, unless the caller says otherwise."""
        return self.lowering.allocate(self.op.outputs[0], is_image)

    def step(self, kernel: Kernel, *views: View) -> KernelStep:
        """Return the step of a kernel that computes only this operator, with its views in the kernel's order."""
        fault_flag = [self.lowering.fault_flag] if kernel.sets_fault_flag else []
        return kernel_step(kernel, (*views, *fault_flag), [self.op.name])

    def lowered(self, result: View, *steps: KernelStep) -> Lowered:
        """Return the first result, with the steps that compute it."""
        return Lowered(views={self.op.outputs[0].name: result}, steps=steps)

    def fuse(
        self,
        image_of: ImageOf,
        *,
        is_image: bool,
        index: int = 0,
        tree: Expr = RESULT,
        views: Sequence[View] = (),
    ) -> Result:
        """Fuse the element-wise operators that follow, and allocate the result.

        Args:
            image_of: shows an array of the result's shape as (n, c, h, w), as the kernel counts.
            is_image: whether it shall lie channels-last.
            index: number of the result.
            tree, views: what the kernel's epilogue begins with, and its further operands.
        """
        fused = fuse_following(self.lowering, unfused(self.op, index, tree, views), image_of)
        return self.result_of(fused, image_of, is_image=is_image)

    def result_of(self, fused: Fused, image_of: ImageOf, *, is_image: bool) -> Result:
        """Allocate the result of operators that are fused already."""
        target = self.lowering.allocate(fused.operand, is_image)
        result = Result.of(fused, target, image_of, self.lowering.fault_flag)
        if result.image.strides[1] > 1:
            raise NotLoweredError("the rows of its result are not contiguous")
        return result


def as_rows(x: View, count: int = 1) -> View | None:
    """Return a view as (rows, contiguous elements of the last ``count`` dimensions); None if it lies otherwise."""
    size = math.prod(x.shape[len(x.shape) - count :])
    result = x.derive(x.meta.reshape(-1, size))
    if result is None or (size > 1 and result.strides[1] != 1):
        return None
    return result
