"""Lowering rules of elements and pixels that other values select."""
