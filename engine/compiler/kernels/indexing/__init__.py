"""Kernels of indexed elements: gather, scatter, embedding bags, ranges."""
