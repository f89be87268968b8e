"""Memory layout of results, decided before the walk.

A tensor is channels-last where image operators make or use it, or what is joined to such a tensor. It is computed in
its slice of a concatenation where one follows, and gets the border of zeros that following convolutions read.

The largest concatenations choose first. Where a network joins the same parts again and again (each block of a DenseNet
joins all before it), the parts lie in the last and largest one, and the earlier ones are slices of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.compiler.addresses import MemorySpace
from engine.compiler.lowering.steps import FLOAT64, computable
from engine.compiler.storage import FLOAT32, View, channels_last, ordered, row_major, spaced_rows
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.ir.dims import hint
from engine.layers.definition.layer import Layer
from engine.layers.shape.join import Cat
from engine.passes.support import permutations
from engine.passes.support.byte_products import BYTES
from engine.tensor import TensorSpec

Border = tuple[int, int, int, int]
NO_BORDER: Border = (0, 0, 0, 0)
BorderRule = Callable[[RuntimeOperator, TensorSpec, TensorSpec], Border]
"""Returns the border of zeros that an operator needs around its first operand, given the specs of that and of its first
result. Where sizes are symbolic it is the maximum over neighbouring sizes, so that all sizes have one layout."""
BorderUse = Callable[[RuntimeOperator, TensorSpec, TensorSpec], Border | None]
"""Returns the part of its operand's border that an operator includes, or None; same arguments."""
BORDER_RULES: dict[type[Layer], BorderRule] = {}
BORDER_FILLS: dict[type[Layer], Callable[[RuntimeOperator], int]] = {}
"""Value of each byte of that border, for layers of bytes; 0 for others."""
IMAGE_LAYERS: set[type[Layer]] = set()
CHANNEL_SELECTORS: set[type[Layer]] = set()
"""Layers that only select channels: the border that their users need is needed of their operand."""
BORDER_USES: dict[type[Layer], BorderUse] = {}
"""Layers whose result is their operand with some of its border; users' borders are added to that."""
ROW_LAYERS: set[type[Layer]] = set()
"""Layers that read their operand row by row, with any distance between rows."""

MAX_NESTING: Final = 32
"""Depth of nested concatenations; deeper ones are computed separately and copied."""
SpecOf = Callable[[RuntimeOperand], TensorSpec | None]


def find_images(
    operators: Sequence[RuntimeOperator],
    spec_of: Callable[[RuntimeOperand], TensorSpec | None],
    image_layers: Collection[type[Layer]],
    keeps_order: Callable[[RuntimeOperator], bool],
) -> set[str]:
    """Return the names of operands that should lie channels-last.

    Args:
        image_layers: layers whose operands and results are images.
        keeps_order: whether an operator's result has the memory order of its operands.
    """
    found: set[str] = set()

    def may_be(operand: RuntimeOperand) -> bool:
        spec = spec_of(operand)
        return spec is not None and spec.rank in (3, 4, 5)

    for op in operators:
        if type(op.definition) in image_layers:
            found.update(each.name for each in (*op.inputs, *op.outputs) if may_be(each))
    around: dict[str, list[RuntimeOperator]] = {}
    for op in operators:
        if op.layer is not None and keeps_order(op):
            for name in {each.name for each in (*op.inputs, *op.outputs) if may_be(each)}:
                around.setdefault(name, []).append(op)
    reached: set[str] = set()
    pending = list(found)
    while pending:
        for op in around.get(pending.pop(), ()):
            if op.name not in reached:  # visit each operator once
                reached.add(op.name)
                same_layout = {
                    each.name for each in (*op.inputs, *op.outputs) if may_be(each) and _is_like(each, op, spec_of)
                }
                pending.extend(same_layout - found)
                found |= same_layout
    return found


def _is_like(
    operand: RuntimeOperand, op: RuntimeOperator, spec_of: Callable[[RuntimeOperand], TensorSpec | None]
) -> bool:
    """Return whether an operand has the rank of the result: broadcast constants and rows have no order to keep."""
    mine, result = spec_of(operand), spec_of(op.outputs[0])
    return mine is not None and result is not None and mine.rank == result.rank


@dataclass(frozen=True, slots=True)
class ConcatSlice:
    """Position of a part along the joined dimension of a concatenation's result."""

    joined: RuntimeOperand
    axis: int
    first: int


def find_slices(
    operators: Sequence[RuntimeOperator], spec_of: SpecOf, appended: Collection[str] = ()
) -> dict[str, ConcatSlice]:
    """Return the slice of each computed operand that is part of a concatenation, by operand name."""
    slices: dict[str, ConcatSlice] = {}
    depths: dict[str, int] = {}
    # Larger concatenations first; of two of equal size, one inside the other, the later one is the outer.
    joins = [op for op in reversed(operators) if isinstance(op.definition, Cat) and op.outputs[0].name not in appended]
    for op in sorted(joins, key=lambda each: -hint(_size(spec_of(each.outputs[0])))):
        around = slices.get(op.outputs[0].name)
        depths[op.outputs[0].name] = depth = 0 if around is None else depths.get(around.joined.name, 0) + 1
        if depth < MAX_NESTING:
            _assign_slices(op, spec_of, slices)
    return slices


def _assign_slices(op: RuntimeOperator, spec_of: SpecOf, slices: dict[str, ConcatSlice]) -> None:
    spec = spec_of(op.outputs[0])
    if spec is None or op.layer is None or op.layer.dynamic or not isinstance(op.definition, Cat):
        return
    axis, first = op.definition.dim % max(spec.rank, 1), 0
    for operand in op.inputs:
        part = spec_of(operand)
        if part is None or part.rank != spec.rank or part.dtype != spec.dtype:
            return
        is_made = operand.producer is not None and operand.producer.layer is not None
        if is_made and operand.name not in slices and op.inputs.count(operand) == 1 and not _is_returned(operand):
            slices[operand.name] = ConcatSlice(op.outputs[0], axis, first)
        first += part.shape[axis] or 0


def _is_returned(operand: RuntimeOperand) -> bool:
    return any(op.type == "pnnx.Output" for op in operand.consumers)


def _size(spec: TensorSpec | None) -> int:
    return (spec.size or 0) if spec is not None else 0


def plan_layout(
    operators: Sequence[RuntimeOperator],
    outputs: Sequence[str],
    spec_of: SpecOf,
    term_of: Callable[[RuntimeOperator], object | None],
    joins: bool,
    appended: Collection[str] = (),
) -> LayoutPlan:
    """Plan the memory layout of a graph before it is lowered.

    Args:
        outputs: names of the operands it returns.
        term_of: the expression of an element-wise operator, None for others.
        joins: whether parts of a concatenation may be computed in their slice.
        appended: operands that lie in the memory of an input.
    """

    def keeps_order(op: RuntimeOperator) -> bool:
        layer = op.definition
        return (
            isinstance(layer, Cat)
            or type(layer) in CHANNEL_SELECTORS
            or type(layer) in BORDER_USES
            or term_of(op) is not None
        )

    return LayoutPlan(
        spec_of=spec_of,
        outputs=outputs,
        slices=find_slices(operators, spec_of, appended) if joins else {},
        images=find_images(operators, spec_of, IMAGE_LAYERS, keeps_order),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutPlan:
    """Memory layout of results. The same operand always gets the same answer, unless a slice is withdrawn.

    Args:
        spec_of: what is known of an operand.
        outputs: names of the operands the graph returns.
        slices: operand -> its slice of a concatenation.
        images: names of the operands that should lie channels-last.
    """

    spec_of: SpecOf
    outputs: Sequence[str]
    slices: Mapping[str, ConcatSlice]
    images: Collection[str]
    _joined: dict[str, View] = field(default_factory=dict)
    _borders: dict[str, Border] = field(default_factory=dict)
    _granted: set[str] = field(default_factory=set)
    _excluded: set[str] = field(default_factory=set)

    def allocate(
        self, operand: RuntimeOperand, is_image: bool | None = None, order: Sequence[int] | None = None
    ) -> View:
        """Allocate an operand: its slice of a concatenation, the output itself, or new memory.

        Args:
            is_image: whether it shall lie channels-last; None for as its neighbours do.
            order: preferred order of its dimensions in memory, where nothing else determines it.

        Raises:
            NotLoweredError: it is not a tensor of floats or bytes with a static shape.
        """
        spec = computable(self.spec_of(operand), FLOAT32, FLOAT64, *BYTES)
        shape, dtype = spec.sizes, spec.dtype
        is_image = self.is_image(operand) if is_image is None else is_image
        if operand.name in self.slices and operand.name not in self._excluded:
            own = self.slices[operand.name]
            view = slice_of(self.joined(own.joined), own.axis, own.first, shape[own.axis])
            if view is not None and (view.is_channels_last or not is_image):
                self._granted.add(operand.name)
                return view
        if not is_image and (port := self._port(operand)) is not None:
            return row_major(shape, dtype, MemorySpace.OUTPUT, port)
        if is_image:
            return channels_last(shape, self.border_for(operand), dtype, self._fill_for(operand))
        if self._is_read_in_rows(operand):
            return spaced_rows(shape, dtype)
        return row_major(shape, dtype) if order is None else ordered(shape, order, dtype)

    def _port(self, operand: RuntimeOperand) -> int | None:
        """Return the number of the one output that an operand is, or is in another shape; None if there is none."""
        while operand.name not in self.outputs and len(operand.consumers) == 1:
            (user,) = operand.consumers
            if not isinstance(user.definition, permutations.VIEWS) or user.inputs[0] is not operand:
                break
            operand = user.outputs[0]
        return self.outputs.index(operand.name) if self.outputs.count(operand.name) == 1 else None

    def checkpoint(self) -> None:
        """Make the slices granted so far final."""
        self._granted.clear()

    def withdraw(self) -> set[str]:
        """Exclude operands whose slices were granted since the last checkpoint; return them."""
        withdrawn = set(self._granted)
        self._excluded.update(withdrawn)
        self._granted.clear()
        return withdrawn

    def restore(self, withdrawn: set[str]) -> None:
        """Let operands have their slices of a concatenation again."""
        self._excluded.difference_update(withdrawn)

    def joined(self, operand: RuntimeOperand) -> View:
        """Return the memory of a concatenation's result, which contains the slices of its parts."""
        if operand.name not in self._joined:
            self._joined[operand.name] = self.allocate(operand)
            self._granted.discard(operand.name)  # the parts lie in it, wherever it lies
        return self._joined[operand.name]

    def is_image(self, operand: RuntimeOperand) -> bool:
        """Return whether an operand should lie channels-last."""
        return operand.name in self.images

    def _is_read_in_rows(self, operand: RuntimeOperand) -> bool:
        """Return whether all users of an operand read it row by row."""
        is_used = bool(operand.consumers) and operand.name not in self.outputs
        return is_used and all(type(op.definition) in ROW_LAYERS for op in operand.consumers)

    def border_for(self, operand: RuntimeOperand, depth: int = 0) -> Border:
        """Return the border of zeros that users of an operand need; distant users have it copied."""
        if operand.name in self._borders or depth > MAX_NESTING:
            return self._borders.get(operand.name, NO_BORDER)
        self._borders[operand.name] = border = self._border_of_users(operand, depth + 1)
        return border

    def _fill_for(self, operand: RuntimeOperand) -> int:
        """Return the value of each byte of the border; users that need another have the operand copied."""
        users = [(op, type(op.definition)) for op in operand.consumers if op.inputs[0] is operand]
        return next((fill for op, kind in users if kind in BORDER_FILLS and (fill := BORDER_FILLS[kind](op))), 0)

    def _border_of_users(self, operand: RuntimeOperand, depth: int) -> Border:
        maker = operand.producer
        parts = maker.inputs if maker is not None and isinstance(maker.definition, Cat) else ()
        borders = [NO_BORDER, *(self._border_in_slice(part, operand, depth) for part in parts)]
        for op in operand.consumers:
            if op.layer is None or op.layer.dynamic:
                continue
            kind = type(op.layer.layer)
            if kind in BORDER_RULES and op.inputs[0] is operand:
                x, y = self.spec_of(operand), self.spec_of(op.outputs[0])
                borders.append(NO_BORDER if x is None or y is None else BORDER_RULES[kind](op, x, y))
            elif kind in BORDER_USES:
                borders.append(self._border_beyond(op, BORDER_USES[kind], depth))
            elif kind in CHANNEL_SELECTORS:
                borders.extend(self.border_for(each, depth) for each in op.outputs)
        top, left, bottom, right = (max(each) for each in zip(*borders, strict=True))
        return top, left, bottom, right

    def _border_beyond(self, op: RuntimeOperator, border_use: BorderUse, depth: int) -> Border:
        """Return the border that an operator takes from its operand, plus the one its users need around that."""
        x, y = self.spec_of(op.inputs[0]), self.spec_of(op.outputs[0])
        taken = None if x is None or y is None else border_use(op, x, y)
        if taken is None or not self.is_image(op.outputs[0]):
            return NO_BORDER
        top, left, bottom, right = (a + b for a, b in zip(taken, self.border_for(op.outputs[0], depth), strict=True))
        return top, left, bottom, right

    def _border_in_slice(self, part: RuntimeOperand, joined: RuntimeOperand, depth: int) -> Border:
        """Return the border that other users of a part need, if it shares rows and columns with the whole."""
        own = self.slices.get(part.name)
        is_inside = own is not None and own.joined is joined and own.axis == 1
        return self.border_for(part, depth) if is_inside else NO_BORDER


def slice_of(view: View, axis: int, first: int, size: int) -> View | None:
    """Return a part of a view along one dimension."""
    slices = [slice(None)] * len(view.shape)
    slices[axis] = slice(first, first + size)
    return view.derive(view.meta[tuple(slices)])
