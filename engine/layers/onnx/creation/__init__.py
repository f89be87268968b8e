"""Tensors that are made."""
