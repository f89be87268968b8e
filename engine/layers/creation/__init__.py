"""Tensors and values that do not depend on other tensors: constants, ranges, random draws, numbers."""
