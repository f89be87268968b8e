"""Raw ``aten::`` types whose meaning depends on how many operands they come with.

TorchScript gives every operand by position, constants and None included, and one name stands for several schemas:
``aten::prod`` takes (input, dtype) or (input, dim, keepdim, dtype).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from engine.errors import ParameterError
from engine.layers.definition.binding import bind
from engine.layers.definition.bound import BoundLayer
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.signature import Signature

IGNORED = "."


class Overloaded(Layer):
    """Base of types with several schemas: number of operands -> layer, names of its operands in order.

    A dot in place of a name leaves out an operand that changes no value, such as a device.
    """

    takes_unknown = True
    schemas: ClassVar[Mapping[int, tuple[type[Layer], str]]] = {}

    annotations: Annotations = NO_ANNOTATIONS

    def __post_init__(self) -> None:
        if len(self.annotations.inputs) not in self.schemas:
            raise ParameterError(
                "no schema with that many operands",
                found=len(self.annotations.inputs),
                expected=" or ".join(str(count) for count in self.schemas),
            )
        _ = self._bound

    def infer(self, *operands: object) -> Any:
        return self._bound.infer(self._kept(operands))

    def forward(self, *operands: object) -> Any:
        return self._bound.forward(self._kept(operands))

    def flops(self, output: Any, *operands: object) -> int:
        return self._bound.flops(output, self._kept(operands))

    def scratch_bytes(self, output: Any, *operands: object) -> int:
        return self._bound.scratch_bytes(output, self._kept(operands))

    @cached_property
    def _bound(self) -> BoundLayer:
        layer, names = self.schemas[len(self.annotations.inputs)]
        kept = tuple(name for name in names.split() if name != IGNORED)
        inputs = tuple(self._kept(self.annotations.inputs))
        return bind(
            Signature(type="aten::" + layer.__name__, layer=layer, positional=kept),
            n_inputs=len(inputs),
            params={},
            attributes={},
            annotations=replace(self.annotations, inputs=inputs, labels=()),
        )

    def _kept(self, operands: Sequence[Any]) -> list[Any]:
        names = self.schemas[len(operands)][1].split()
        return [operand for name, operand in zip(names, operands, strict=True) if name != IGNORED]
