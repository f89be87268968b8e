"""Lowering rules of pooling: windows, whole images, the indices of largest elements."""
