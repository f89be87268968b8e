"""Lowering rules of element-wise arithmetic of every dtype."""
