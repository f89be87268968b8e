"""A plugin: the layer for an operator that this project does not know. See docs/custom-operators.md.

    pnnx-serve serve --plugin examples/custom_operator.py

The operator is the module ``Sub`` of custom_operator_model.py, kept whole by the exporter. Its line in the file:

    custom_operator_model.Sub sub 2 2 0 1 2 3 @k=(2)f32 @lin.bias=(4)f32 @lin.weight=(4,3)f32 @pnnx_00=(4)f32
        @w=(3,3)f32 #0=(2,3)f32 #1=(5)f32 #2=(2,3)f32 #3=(2,4)f32
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

import engine

Array = NDArray[Any]


@engine.register("custom_operator_model.Sub")
class Sub(engine.Layer):
    """wide = x linᵀ + bias + constant * mean(y), narrow = x w * k₀ + k₁.

    Shapes:
        x (N, 3), y (M,)  ->  wide (N, 4), narrow (N, 3), in the order in which the network uses them first.
    """

    # Shapes of operands and results in the file. Here they tell which result is which.
    annotations: engine.Annotations

    def infer(self, x: engine.TensorSpec, y: object, *weights: object) -> Any:
        """Return shape and dtype of each result; the arguments are shapes and dtypes, too."""
        return self._in_order([engine.TensorSpec((x.shape[0], width), x.dtype) for width in (4, 3)])

    # Operands first, in the order of the line; then the attributes by name, with "_" for ".".
    def forward(
        self, x: Array, y: Array, w: Array, k: Array, lin_weight: Array, lin_bias: Array, pnnx_00: Array
    ) -> Any:
        """Return both results, or the only one that is used."""
        wide = x @ lin_weight.T + lin_bias + pnnx_00 * y.mean(dtype=y.dtype)
        narrow = (x @ w) * k[0] + k[1]
        return self._in_order([wide, narrow])

    def _in_order(self, results: list[Any]) -> Any:
        """The converter lists the results in the order of their first use, and drops unused ones."""
        by_width = {result.shape[-1]: result for result in results}
        widths = [output.shape[-1] for output in self.annotations.outputs if output is not None]
        ordered = tuple(by_width[width] for width in widths)
        return ordered[0] if len(ordered) == 1 else ordered
