"""Why operators have no kernel, by the family they are listed under: a line below its table in docs/operators.md."""

from __future__ import annotations

from typing import Final

_RANDOM: Final = "random numbers come from the generator of numpy, so that seeds give the same results"
_NO_TENSORS: Final = "they compute numbers and lists, not tensors; computed before the run if possible"
_CONSTANT: Final = "they depend on no tensor, so they are computed before the run, unless a size is unknown until then"
_LENGTH: Final = "the size of the result depends on values, but memory is planned before the run"
_RARE: Final = "rare in networks, not yet compiled"
_AS_FAST: Final = "compiled, they would take about as long as on numpy"
_INTEGERS: Final = "kernels for PyTorch's quantised tensors do not exist yet"
_ONNX_FORM: Final = "not compiled in the ONNX form; the equivalent PyTorch operator is, or has a reason above"

REASONS: Final = {
    "control.subgraphs": "its subgraph is compiled",
    "creation.container": _NO_TENSORS,
    "creation.creation": _CONSTANT,
    "creation.distribution": _RANDOM,
    "creation.matrices": _CONSTANT,
    "creation.numbers": _NO_TENSORS,
    "creation.randomness": _RANDOM,
    "creation.scripted": _NO_TENSORS,
    "creation.sequences": _CONSTANT,
    "elementwise.cast": _RARE,
    "elementwise.comparison": _RARE,
    "elementwise.complex": _AS_FAST,
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
    "sorting.order_statistics": "counting equal elements is not yet compiled",
    "sorting.searching": _LENGTH + "; the others are rare",
    "pooling.fractional_pool": _RANDOM,
    "quantised.quantise": _INTEGERS,
    "quantised.quantised_product": _INTEGERS,
    "reduction.covariance": _RARE,
    "reduction.distance": _RARE,
    "reduction.scan": _RARE,
    "shape.diagonal": _RARE,
    "signal.fourier": _AS_FAST,
    "signal.short_time_fourier": _AS_FAST,
    "signal.window_functions": _CONSTANT,
    "vision.interpolate": _RARE,
    "vision.nms": _LENGTH,
    "vision.roi": _RARE,
    "onnx.products.quantise": "the pass `integer_products` replaces those with stored weights by compiled ones",
    "onnx.control.sequence": _NO_TENSORS,
    "onnx.creation.creation": _CONSTANT,
    "onnx.creation.window_functions": _CONSTANT,
    "onnx.vision.regions": _LENGTH,
}
"""Module below ``engine.layers`` -> why those of its types that have none have no kernel."""


def reason(module: str) -> str:
    """Return why types of a family have no kernel.

    Raises:
        KeyError: no reason is listed for the family.
    """
    name = module.removeprefix("engine.layers.")
    return REASONS[name] if name in REASONS or not name.startswith("onnx.") else _ONNX_FORM
