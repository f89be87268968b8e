"""Kernels of order along a dimension: sort, search, cumulative sums and extrema."""
