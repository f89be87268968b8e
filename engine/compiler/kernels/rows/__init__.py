"""Kernels along contiguous rows: reductions, softmax, layer normalisation."""
