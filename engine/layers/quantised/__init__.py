"""Quantised tensors: integers that represent other numbers."""
