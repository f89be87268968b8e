"""Where results shall lie, decided with a look ahead.

A convolution that follows asks for a border of zeros, a concatenation that follows gives the tensor its place in the
joined one, image operators around it want it channels-last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from engine.compiler.lowering.declining import FLOAT32, FLOAT64, computable
from engine.compiler.lowering.layout.images import find_images
from engine.compiler.lowering.layout.joins import MAX_NESTING, Place, SpecOf, find_places
from engine.compiler.lowering.layout.wishes import (
    BORDERS,
    IMAGE_LAYERS,
    NO_BORDER,
    ROW_LAYERS,
    SEE_THROUGH,
    WIDENING,
    Border,
    Widening,
)
from engine.compiler.places import Home
from engine.compiler.storage import View, channels_last, ordered, row_major, spaced_rows
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.layers.shape.join import Cat


def look_ahead(
    operators: Sequence[RuntimeOperator],
    outputs: Sequence[str],
    spec_of: SpecOf,
    term_of: Callable[[RuntimeOperator], object | None],
    joins: bool,
) -> Placement:
    """Look through a graph before it is lowered.

    Args:
        outputs: names of the operands it returns.
        term_of: the expression of an operator that is a map, None for others.
        joins: whether parts of a concatenation may be computed in their place.
    """

    def keeps_order(op: RuntimeOperator) -> bool:
        layer = op.definition
        return (
            isinstance(layer, Cat) or type(layer) in SEE_THROUGH or type(layer) in WIDENING or term_of(op) is not None
        )

    return Placement(
        spec_of=spec_of,
        outputs=outputs,
        places=find_places(operators, spec_of) if joins else {},
        images=find_images(operators, spec_of, IMAGE_LAYERS, keeps_order),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where results shall lie. Asked twice it says the same, unless a place is withdrawn.

    Args:
        spec_of: what is known of an operand.
        outputs: names of the operands the graph returns.
        places: operand -> where in a concatenation it lies.
        images: names of the operands that should lie channels-last.
    """

    spec_of: SpecOf
    outputs: Sequence[str]
    places: Mapping[str, Place]
    images: Collection[str]
    _joined: dict[str, View] = field(default_factory=dict)
    _borders: dict[str, Border] = field(default_factory=dict)
    _given: set[str] = field(default_factory=set)
    _apart: set[str] = field(default_factory=set)

    def place(self, operand: RuntimeOperand, is_image: bool | None = None, order: Sequence[int] | None = None) -> View:
        """Memory for an operand about to be computed: its slice of a concatenation, the output itself, or new.

        Args:
            is_image: whether it shall lie channels-last; None for as those around it do.
            order: in which its dimensions shall follow each other, where nobody else wants it otherwise.

        Raises:
            NotLoweredError: it is no tensor of floats of static shape.
        """
        spec = computable(self.spec_of(operand), FLOAT32, FLOAT64)
        shape, dtype = spec.sizes, spec.dtype
        is_image = self.is_image(operand) if is_image is None else is_image
        if operand.name in self.places and operand.name not in self._apart:
            place = self.places[operand.name]
            view = slice_of(self.joined(place.joined), place.axis, place.first, shape[place.axis])
            if view is not None and (view.is_channels_last or not is_image):
                self._given.add(operand.name)
                return view
        if not is_image and self.outputs.count(operand.name) == 1:
            return row_major(shape, dtype, Home.OUTPUT, self.outputs.index(operand.name))
        if is_image:
            return channels_last(shape, self.border_for(operand), dtype)
        if self._is_read_in_rows(operand):
            return spaced_rows(shape, dtype)
        return row_major(shape, dtype) if order is None else ordered(shape, order, dtype)

    @property
    def is_apart(self) -> bool:
        """Whether anything that has a place in a concatenation is kept out of it."""
        return bool(self._apart)

    def settle(self) -> None:
        """What was given so far is as it shall be."""
        self._given.clear()

    def withdraw(self) -> set[str]:
        """Keep apart what was given a place in a concatenation since all was settled; which operands those are."""
        withdrawn = set(self._given)
        self._apart.update(withdrawn)
        self._given.clear()
        return withdrawn

    def give_back(self, withdrawn: set[str]) -> None:
        """Let operands have their places in a concatenation again."""
        self._apart.difference_update(withdrawn)

    def joined(self, operand: RuntimeOperand) -> View:
        """Memory of a concatenation's result, in which its parts find their places."""
        if operand.name not in self._joined:
            self._joined[operand.name] = self.place(operand)
            self._given.discard(operand.name)  # the parts lie in it, wherever that is
        return self._joined[operand.name]

    def is_image(self, operand: RuntimeOperand) -> bool:
        """Whether an operand should lie channels-last."""
        return operand.name in self.images

    def _is_read_in_rows(self, operand: RuntimeOperand) -> bool:
        """Whether all who read an operand do so row by row."""
        is_used = bool(operand.consumers) and operand.name not in self.outputs
        return is_used and all(type(op.definition) in ROW_LAYERS for op in operand.consumers)

    def border_for(self, operand: RuntimeOperand, depth: int = 0) -> Border:
        """The zeros that users of an operand want around it; those of users far away have it copied."""
        if operand.name in self._borders or depth > MAX_NESTING:
            return self._borders.get(operand.name, NO_BORDER)
        self._borders[operand.name] = border = self._border_of_users(operand, depth + 1)
        return border

    def _border_of_users(self, operand: RuntimeOperand, depth: int) -> Border:
        maker = operand.producer
        parts = maker.inputs if maker is not None and isinstance(maker.definition, Cat) else ()
        borders = [NO_BORDER, *(self._border_in_place(part, operand, depth) for part in parts)]
        for op in operand.consumers:
            if op.layer is None or op.layer.dynamic:
                continue
            kind = type(op.layer.layer)
            if kind in BORDERS and op.inputs[0] is operand:
                x, y = self.spec_of(operand), self.spec_of(op.outputs[0])
                borders.append(NO_BORDER if x is None or y is None else BORDERS[kind](op, x, y))
            elif kind in WIDENING:
                borders.append(self._border_beyond(op, WIDENING[kind], depth))
            elif kind in SEE_THROUGH:
                borders.extend(self.border_for(each, depth) for each in op.outputs)
        top, left, bottom, right = (max(each) for each in zip(*borders, strict=True))
        return top, left, bottom, right

    def _border_beyond(self, op: RuntimeOperator, wish: Widening, depth: int) -> Border:
        """What an operator takes of its operand's border, and what its users want around that."""
        x, y = self.spec_of(op.inputs[0]), self.spec_of(op.outputs[0])
        taken = None if x is None or y is None else wish(op, x, y)
        if taken is None or not self.is_image(op.outputs[0]):
            return NO_BORDER
        top, left, bottom, right = (a + b for a, b in zip(taken, self.border_for(op.outputs[0], depth), strict=True))
        return top, left, bottom, right

    def _border_in_place(self, part: RuntimeOperand, joined: RuntimeOperand, depth: int) -> Border:
        """What the other users of a part want around it, where it shares rows and columns with the joined tensor."""
        place = self.places.get(part.name)
        is_inside = place is not None and place.joined is joined and place.axis == 1
        return self.border_for(part, depth) if is_inside else NO_BORDER


def slice_of(view: View, axis: int, first: int, size: int) -> View | None:
    """A part of a view along one dimension."""
    slices = [slice(None)] * len(view.shape)
    slices[axis] = slice(first, first + size)
    return view.derive(view.phantom[tuple(slices)])
