"""A graph being lowered: what rules ask of it, and what they make.

Where a tensor lies is decided when it is made, with a look ahead: a convolution that follows asks for a border of
zeros, a concatenation that follows gives the tensor its place in the joined one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from engine.compiler.blueprint import Home
from engine.compiler.codegen.host import Host
from engine.compiler.kernels.expr import Operand
from engine.compiler.kernels.kernel import Kernel
from engine.compiler.kernels.map import make_map
from engine.compiler.lowering.copying import make_transpose
from engine.compiler.lowering.joins import MAX_NESTING, Place
from engine.compiler.lowering.rules.registry import (
    BORDERS,
    FLOAT32,
    NO_BORDER,
    ROW_LAYERS,
    SEE_THROUGH,
    Border,
    NotLoweredError,
)
from engine.compiler.lowering.steps import KernelStep, Pointer, Step, pointer
from engine.compiler.lowering.terms.elementwise import Lowered, expression_of, settled
from engine.compiler.storage import View, alarm, channels_last, constant, row_major, spaced_rows
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers.definition.binding import BoundLayer
from engine.layers.definition.layer import Layer
from engine.layers.shape.join import Cat
from engine.options import Options
from engine.tensor import UNKNOWN, Array, TensorSpec, dtype_name, is_known, known_value

L = TypeVar("L", bound=Layer)

_log = logging.getLogger("pnnx_serve.engine")


@dataclass(slots=True)
class Lowering:
    """A graph being lowered.

    Args:
        operators: in execution order.
        values: what is known of every operand: a static TensorSpec for what can lie in memory.
        inputs, outputs: names of the operands the graph takes and returns, as a caller counts them.
        alone: operators whose kernels take in nothing that follows.
        refused: operators that are left to the reference, and why.

    Attributes:
        steps: what was lowered so far.
        views: where operands lie.
        constants: values of operands that no run changes.
        results: of every output its view, or the operand's name where its value is kept.
        reasons: operator -> why it is left to the reference.
        alarm: where kernels say that they met what is not finite; None if none of them needs to.
        fusions: names of the operators that joined others, by the name of the pass.
        absorbed: names of operators that a kernel before them computes, in the order they joined.
        places: operand -> where in a concatenation it lies.
        images: names of the operands that should lie channels-last.
    """

    operators: Sequence[RuntimeOperator]
    values: Mapping[str, object]
    inputs: Sequence[str]
    outputs: Sequence[str]
    host: Host
    options: Options = field(default_factory=Options)
    alone: Collection[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    views: dict[str, View] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    results: list[View | str] = field(default_factory=list)
    alarm: View | None = None
    fusions: dict[str, list[str]] = field(default_factory=dict)
    absorbed: dict[str, None] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    images: set[str] = field(default_factory=set)
    _shared: dict[int, View] = field(default_factory=dict)
    _joined: dict[str, View] = field(default_factory=dict)
    _borders: dict[str, Border] = field(default_factory=dict)

    # -- what rules ask -----------------------------------------------------------------------------------------------

    def layer(self, op: RuntimeOperator, kind: type[L]) -> L:
        """The layer of an operator, the parameters that arrive as operands filled in.

        Raises:
            NotLoweredError: only a run can tell a parameter.
        """
        bound: BoundLayer = layer_of(op)
        layer = settled(bound, [self._as_argument(each) for each in op.inputs])
        if layer is None:
            raise NotLoweredError("one of its parameters is known only in a run")
        assert isinstance(layer, kind)
        return layer

    def spec(self, operand: RuntimeOperand) -> TensorSpec | None:
        """Shape and dtype of an operand that can lie in memory."""
        value = self.values.get(operand.name, UNKNOWN)
        return value if isinstance(value, TensorSpec) and value.is_static else None

    def float_spec(self, operand: RuntimeOperand) -> TensorSpec:
        """The spec of an operand kernels can compute with.

        Raises:
            NotLoweredError: it is no float32 tensor of static shape, or has no elements.
        """
        spec = self.spec(operand)
        if spec is None:
            raise NotLoweredError("its shape is known only in a run")
        if spec.dtype != FLOAT32:
            raise NotLoweredError(f"there are no {dtype_name(spec.dtype)} kernels")
        if spec.size == 0:
            raise NotLoweredError("it has no elements")
        return spec

    def argument(self, op: RuntimeOperator, index: int) -> View | object:
        """The view of a tensor argument of forward; the value itself where it is known now."""
        layer = layer_of(op)
        if index >= len(layer.positional):
            return None
        source = layer.positional[index]
        if source.index is None:
            constant: object = source.constant
            return constant
        return self.value(op.inputs[source.index])

    def arguments(self, op: RuntimeOperator) -> list[View | object]:
        """All arguments of forward, each as ``argument`` has it."""
        return [self.argument(op, index) for index, _ in enumerate(layer_of(op).positional)]

    def value(self, operand: RuntimeOperand) -> View | object:
        """What an operand is while lowering: constant array, Python value, or view."""
        if operand.name in self.constants:
            return self.constants[operand.name]
        if operand.name in self.views:
            return self.views[operand.name]
        value = known_value(self.values.get(operand.name, UNKNOWN))
        if is_known(value):
            return value
        raise NotLoweredError(f"operand '{operand.name}' is a value only a run can tell")

    def tensor(self, op: RuntimeOperator, index: int) -> View:
        """A float32 tensor argument, in memory."""
        value = self.argument(op, index)
        if isinstance(value, np.ndarray):
            value = self.view_of(value)
        if not isinstance(value, View):
            raise NotLoweredError("an operand is no tensor")
        if value.dtype != FLOAT32:
            raise NotLoweredError(f"there are no {dtype_name(value.dtype)} kernels")
        if value.phantom.size == 0:
            raise NotLoweredError("an operand has no elements")
        return value

    def weight(self, op: RuntimeOperator, index: int, optional: bool = False) -> Array | None:
        """A float32 argument whose value is known now."""
        value = self.argument(op, index)
        if value is None and optional:
            return None
        if not isinstance(value, np.ndarray):
            raise NotLoweredError("its weights are computed")
        if value.dtype != FLOAT32:
            raise NotLoweredError(f"its weights are {value.dtype.name}")
        return value

    def view_of(self, data: Array) -> View:
        """A constant in memory; the same array is stored once."""
        if id(data) not in self._shared:
            self._shared[id(data)] = constant(data)
            self.constants.setdefault(f"\0{id(data)}", data)  # keeps the array, and so its id, alive
        return self._shared[id(data)]

    # -- what rules make ----------------------------------------------------------------------------------------------

    def emit(self, kernel: Kernel, pointers: Sequence[Pointer], operators: Sequence[str], bytes: int = 0) -> None:
        """Add a kernel."""
        if kernel.sets_alarm:
            self.alarm = self.alarm or alarm()
            pointers = [*pointers, pointer(self.alarm)]
        self.steps.append(KernelStep(kernel=kernel, pointers=tuple(pointers), operators=tuple(operators), bytes=bytes))

    def image(self, op: RuntimeOperator, x: View, border: Border = NO_BORDER) -> View:
        """An operand lying channels-last with at least these zeros around it; a copy where it does not."""
        has_room = all(mine >= wanted for mine, wanted in zip(x.border, border, strict=True))
        if has_room and (x.strides[1] == 1 or x.shape[1] == 1):
            return x
        copy = channels_last(x.shape, border)
        self.copy(x, copy, [op.name])
        return copy

    def copy(self, source: View, target: View, operators: Sequence[str]) -> None:
        """Add a copy between views of one shape."""
        turned = make_transpose(source.shape, source.strides, target.strides, self.host)
        if turned is not None:
            self.emit(turned, [pointer(source), pointer(target)], operators, 2 * target.phantom.nbytes)
            return
        kernel = make_map(source.shape, target.strides, [source.strides], Operand(0), self.host)
        self.emit(kernel, [pointer(target), pointer(source)], operators, 2 * target.phantom.nbytes)

    def define(self, operand: RuntimeOperand, view: View) -> None:
        """Say where an operand lies."""
        self.views[operand.name] = view

    def place(self, operand: RuntimeOperand, is_image: bool) -> View:
        """Memory for an operand about to be computed: its slice of a concatenation, the output itself, or new."""
        shape = self.float_spec(operand).sizes
        if operand.name in self.places:
            place = self.places[operand.name]
            whole = self.joined(place.joined)
            slices = [slice(None)] * len(shape)
            slices[place.axis] = slice(place.first, place.first + shape[place.axis])
            view = whole.derive(whole.phantom[tuple(slices)])
            if view is not None and (view.is_channels_last or not is_image):
                return view
        if not is_image and self.is_output(operand):
            return row_major(shape, FLOAT32, Home.OUTPUT, self.outputs.index(operand.name))
        if is_image:
            return channels_last(shape, self.border_for(operand))
        return spaced_rows(shape) if self._is_read_in_rows(operand) else row_major(shape, FLOAT32)

    def _is_read_in_rows(self, operand: RuntimeOperand) -> bool:
        """Whether all who read an operand do so row by row."""
        users = [each.layer for each in operand.consumers]
        is_used = bool(users) and operand.name not in self.outputs
        return is_used and all(each is not None and type(each.layer) in ROW_LAYERS for each in users)

    def joined(self, operand: RuntimeOperand) -> View:
        """Memory of a concatenation's result, made when its first part is; it may be read when it is defined."""
        if operand.name not in self._joined:
            self._joined[operand.name] = self.place(operand, self.is_image(operand))
        return self._joined[operand.name]

    def is_begun(self, operand: RuntimeOperand) -> bool:
        """Whether memory was chosen for a concatenation's result, and some part may lie there."""
        return operand.name in self._joined

    def is_output(self, operand: RuntimeOperand) -> bool:
        """Whether an operand is returned by the graph, once."""
        return self.outputs.count(operand.name) == 1

    def is_image(self, operand: RuntimeOperand) -> bool:
        """Whether an operand should lie channels-last."""
        return operand.name in self.images

    def border_for(self, operand: RuntimeOperand, depth: int = 0) -> Border:
        """The zeros that users of an operand want around it; those of users far away have it copied."""
        if operand.name in self._borders or depth > MAX_NESTING:
            return self._borders.get(operand.name, NO_BORDER)
        self._borders[operand.name] = border = self._border_of_users(operand, depth + 1)
        return border

    def _border_of_users(self, operand: RuntimeOperand, depth: int) -> Border:
        parts = (
            []
            if operand.producer is None or not isinstance(kind_of(operand.producer), Cat)
            else operand.producer.inputs
        )
        borders = [NO_BORDER, *(self._border_in_place(part, operand, depth) for part in parts)]
        for op in operand.consumers:
            if op.layer is None or op.layer.dynamic:
                continue
            kind = type(op.definition)
            if kind in BORDERS and op.inputs[0] is operand:
                x, y = self.spec(operand), self.spec(op.outputs[0])
                borders.append(NO_BORDER if x is None or y is None else BORDERS[kind](op, x, y))
            elif kind in SEE_THROUGH:
                borders.extend(self.border_for(each, depth) for each in op.outputs)
        top, left, bottom, right = (max(each) for each in zip(*borders, strict=True))
        return top, left, bottom, right

    def _border_in_place(self, part: RuntimeOperand, joined: RuntimeOperand, depth: int) -> Border:
        """What the other users of a part want around it, where it shares rows and columns with the joined tensor."""
        place = self.places.get(part.name)
        is_inside = place is not None and place.joined is joined and place.axis == 1
        return self.border_for(part, depth) if is_inside else NO_BORDER

    def elementwise(self, op: RuntimeOperator) -> Lowered | None:
        """The expression an operator stands for, if it is a float32 map."""
        spec = self.spec(op.outputs[0]) if len(op.outputs) == 1 else None
        if op.layer is None or op.name in self.refused or spec is None or spec.dtype != FLOAT32 or not spec.size:
            return None
        return expression_of(op.layer, [self._as_argument(each) for each in op.inputs])

    def _as_argument(self, operand: RuntimeOperand) -> object:
        """A constant's array, or what is known; specs are new objects, for operands are told apart by identity."""
        value = self.constants.get(operand.name, self.values.get(operand.name, UNKNOWN))
        return replace(value) if isinstance(value, TensorSpec) else value


def kind_of(op: RuntimeOperator) -> Layer | None:
    """The layer of an operator, its parameters perhaps open; None for those that compute nothing."""
    return op.definition


def layer_of(op: RuntimeOperator) -> Any:
    """The bound layer of an operator.

    Raises:
        NotLoweredError: it has none.
    """
    if op.layer is None:
        raise NotLoweredError("it computes nothing")
    return op.layer
