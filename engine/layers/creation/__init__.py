"""Tensors and values that come from no other tensor: constants, ranges, draws, numbers."""
