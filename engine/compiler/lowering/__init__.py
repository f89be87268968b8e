"""Lowering: from operators to kernel steps.

layout decides where results lie in memory, and which zeros their readers need around them. Then walk calls the lowering
rule of every layer (rules) with a context. fusion adds the element-wise operators (terms) that follow to a kernel.
"""

from engine.compiler.lowering.lowering import Lowering
from engine.compiler.lowering.rules.convolution import conv, conv_transpose, deformable
from engine.compiler.lowering.rules.elementwise import complex_numbers, map, quantise, typed_functions, typed_maps
from engine.compiler.lowering.rules.indexing import embedding, gather, resize, sampling, scatter
from engine.compiler.lowering.rules.learning import trees, vectors
from engine.compiler.lowering.rules.movement import constant_gather, constants, copies, padding, views
from engine.compiler.lowering.rules.pooling import pool
from engine.compiler.lowering.rules.products import (
    attention,
    complex_products,
    contraction,
    fourier,
    group_query,
    integer_products,
    linear,
    matmul,
    spectrogram,
)
from engine.compiler.lowering.rules.recurrent import networks
from engine.compiler.lowering.rules.rows import (
    distances,
    extremes,
    normalisation,
    norms,
    ordering,
    reductions,
)
from engine.compiler.lowering.terms import activations, functions, quantising
from engine.compiler.lowering.walk import lower

__all__ = ["Lowering", "lower"]
# Importing these modules registers their rules.
_RULES = (
    (conv, conv_transpose, deformable, complex_numbers, map, quantise, typed_functions, typed_maps),
    (embedding, gather, resize, sampling, scatter, constant_gather, constants, copies, padding, views),
    (pool, attention, complex_products, contraction, fourier, group_query),
    (integer_products, linear, matmul, spectrogram, networks, distances, extremes),
    (normalisation, norms, ordering, reductions, activations, functions, quantising, trees, vectors),
)
