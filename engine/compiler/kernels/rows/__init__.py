"""Kernels that work along rows which are contiguous."""
