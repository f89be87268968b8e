"""Lowering rules of products: linear layers, batched matrices, attention, contractions, transforms."""
