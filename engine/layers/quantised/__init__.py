"""Tensors of integers that stand for other numbers."""
