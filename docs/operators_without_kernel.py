"""Why operators have no kernel, by the family they are listed under: a line below its table in docs/operators.md."""

from __future__ import annotations

from typing import Final

_RANDOM: Final = "every run draws anew from numpy's generator, which seeds and the tests' answers are tied to"
_NO_TENSORS: Final = "numbers, lists and the like, no elements of tensors; worked out before the run where that can be"
_CONSTANT: Final = "depends on no tensor, so it is computed before the run, but where a size is known only in it"
_LENGTH: Final = "how long the result is depends on values, and memory is laid out before the run"
_RARE: Final = "rare in networks; a rule is yet to be written"
_INTEGERS: Final = "kernels compute in float32; those of quantised integers are yet to be written"
_ONNX_FORM: Final = (
    "what pnnx leaves in ONNX's form; PyTorch's operator of the same meaning has a kernel, or the reason it has none"
)

REASONS: Final = {
    "creation.container": _NO_TENSORS,
    "creation.creation": _CONSTANT,
    "creation.distribution": _RANDOM,
    "creation.matrices": _CONSTANT,
    "creation.numbers": _NO_TENSORS,
    "creation.randomness": _RANDOM,
    "creation.scripted": _NO_TENSORS,
    "creation.sequences": _CONSTANT,
    "elementwise.comparison": _RARE,
    "elementwise.functions": _RARE,
    "elementwise.mathematics": _RARE,
    "indexing.masking": _RARE,
    "indexing.selection": _LENGTH + "; the others are rare",
    "linear.embedding": _RARE,
    "linear.linear": _RARE,
    "linear.matmul": _RARE,
    "linear.product": _RARE,
    "linear.square": _RARE,
    "linear.triangular": _RARE,
    "sorting.order_statistics": "how many elements are equal is yet to be counted",
    "sorting.searching": _LENGTH + "; the others are rare",
    "pooling.fractional_pool": _RANDOM,
    "quantised.quantise": _INTEGERS,
    "quantised.quantised_product": _INTEGERS,
    "reduction.covariance": _RARE,
    "reduction.distance": _RARE,
    "shape.diagonal": _RARE,
    "signal.window_functions": _CONSTANT,
    "vision.interpolate": _RARE,
    "vision.nms": _LENGTH,
    "onnx.products.quantise": "the pass `integer_products` makes what has kernels of them, where weights are stored",
    "onnx.control.sequence": _NO_TENSORS,
    "onnx.creation.creation": _CONSTANT,
    "onnx.creation.window_functions": _CONSTANT,
    "onnx.vision.regions": _LENGTH + "; borders that values round are rare",
}
"""Module below ``engine.layers`` -> why those of its types that have none have no kernel."""


def reason(module: str) -> str:
    """Return why types of a family have no kernel.

    Raises:
        KeyError: no reason is listed for the family.
    """
    name = module.removeprefix("engine.layers.")
    return REASONS[name] if name in REASONS or not name.startswith("onnx.") else _ONNX_FORM
