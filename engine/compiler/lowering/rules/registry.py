"""Registry of lowering rules: the rule of each layer, and its fallbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.compiler.lowering.layout import IMAGE_LAYERS, ROW_LAYERS
from engine.compiler.lowering.steps import Lowered
from engine.layers.definition.layer import Layer

if TYPE_CHECKING:
    from engine.compiler.lowering.context import Context

KernelRule = Callable[["Context"], Lowered]
"""Lowers an operator, given its context, which it does not change."""
KERNEL_RULES: dict[type[Layer], KernelRule] = {}
FALLBACKS: dict[type[Layer], KernelRule] = {}
"""Rules for layers whose own rule refuses an operator."""
DOUBLES: set[KernelRule] = set()
"""Rules that lower float64 too; all tensors of the operator have the dtype of the result."""
OF_BYTES: set[KernelRule] = set()
"""Rules that lower uint8 and int8 too, in the same way."""
BESIDE_MAPS: set[type[Layer]] = set()
"""Layers whose operators are maps where they are expressions of floats."""


def kernels_for(
    *layers: type[Layer],
    image: bool = False,
    rows: bool = False,
    doubles: bool = False,
    of_bytes: bool = False,
    beside_maps: bool = False,
) -> Callable[[KernelRule], KernelRule]:
    """Register the rule of exactly these classes, not of their subclasses.

    Args:
        image: whether they prefer channels-last operands.
        rows: whether they read their operand row by row, with any distance between rows.
        doubles: whether the rule makes kernels of float64 too.
        of_bytes: whether it makes kernels of uint8 and int8 too.
        beside_maps: whether the rule is only for operators that are not expressions of floats; those become maps.
    """

    def add(rule: KernelRule) -> KernelRule:
        KERNEL_RULES.update(dict.fromkeys(layers, rule))
        if image:
            IMAGE_LAYERS.update(layers)
        if rows:
            ROW_LAYERS.update(layers)
        if doubles:
            DOUBLES.add(rule)
        if of_bytes:
            OF_BYTES.add(rule)
        if beside_maps:
            BESIDE_MAPS.update(layers)
        return rule

    return add
