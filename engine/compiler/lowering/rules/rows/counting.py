"""How many elements lie where."""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.rules.elementwise.composing import Composition, derived
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Made
from engine.compiler.storage import constant
from engine.layers.sorting.searching import Histogram

# Elements times bins, beyond which comparing each with each takes longer than sorting.
_MOST: Final = 1 << 20


@kernels_for(Histogram)
def lower_histogram(context: Context) -> Made:
    """Every element is compared with the edges of every bin; the last bin has both of its edges."""
    layer, x, composition = context.layer(Histogram), context.tensor(0), Composition(context)
    if layer.min == layer.max:
        raise NotLoweredError("its interval is that of its values")
    if x.phantom.size * layer.bins > _MOST:
        raise NotLoweredError("it has too many bins for so many elements")
    edges = np.linspace(layer.min, layer.max, layer.bins + 1).astype(np.float32)
    if not (np.isfinite(edges).all() and (np.diff(edges) > 0).all()):
        raise NotLoweredError("its bins are too narrow, or too wide")
    low, high = edges[:-1, None], edges[1:, None].copy()
    high[-1] = np.nextafter(high[-1], np.inf, dtype=np.float32)
    is_in = apply("mul", apply("ge", Operand(0), Operand(1)), apply("lt", Operand(0), Operand(2)))
    elements = composition.shaped(x, (1, x.phantom.size))
    found = composition.map(is_in, elements, constant(low), constant(high))
    counts = composition.reduce(found, [1], "sum")
    return composition.finish(Operand(0), derived(counts, counts.phantom.reshape(layer.bins)))
