"""From operators to kernels. Importing the room registers all rules.

layout looks ahead: where results shall lie, and the zeros that their readers want around them. Then walk asks the rule
of every layer (rules) with a context; fusion finds the element-wise operators (terms) that its kernel takes in; result
is the frame around a kernel; steps are what comes of it all.
"""

from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.rules.convolution import conv, conv_transpose, deforming
from engine.compiler.lowering.rules.elementwise import complexes, elements, map, onnx_elements, promoting, quantising
from engine.compiler.lowering.rules.indexing import bags, gather, onnx_places, picking, resize, sampling, scattering
from engine.compiler.lowering.rules.movement import filling, moved, moving, padding, placing, rearrange
from engine.compiler.lowering.rules.pooling import onnx_pools, pool
from engine.compiler.lowering.rules.products import (
    attention,
    contracting,
    einsum,
    encoder,
    experts,
    fourier,
    grouped,
    integers,
    linear,
    multihead,
    onnx_spectra,
    products,
    spectra,
)
from engine.compiler.lowering.rules.products import complexes as complex_products
from engine.compiler.lowering.rules.recurrent import layers as recurrent
from engine.compiler.lowering.rules.recurrent import onnx as recurrent_onnx
from engine.compiler.lowering.rules.rows import (
    counting,
    distances,
    extremes,
    losses,
    normalising,
    onnx_rows,
    quantiles,
    reducing,
    rows,
    searching,
    sorting,
    standardising,
)
from engine.compiler.lowering.terms import activations, batch_norm, functions, onnx, pnnx_expression
from engine.compiler.lowering.walk import lower

__all__ = ["Lowering", "lower"]
# Rules of kernels, and of expressions.
__all__ += [
    "attention",
    "bags",
    "complex_products",
    "complexes",
    "contracting",
    "conv",
    "conv_transpose",
    "counting",
    "deforming",
    "distances",
    "einsum",
    "elements",
    "encoder",
    "experts",
    "extremes",
    "filling",
    "fourier",
    "gather",
    "grouped",
    "integers",
    "linear",
    "losses",
    "map",
    "moved",
    "moving",
    "multihead",
    "normalising",
    "onnx_elements",
    "onnx_places",
    "onnx_pools",
    "onnx_rows",
    "onnx_spectra",
    "padding",
    "picking",
    "placing",
    "pool",
    "products",
    "promoting",
    "quantiles",
    "quantising",
    "rearrange",
    "recurrent",
    "recurrent_onnx",
    "reducing",
    "resize",
    "rows",
    "sampling",
    "scattering",
    "searching",
    "sorting",
    "spectra",
    "standardising",
]
__all__ += ["activations", "batch_norm", "functions", "onnx", "pnnx_expression"]
