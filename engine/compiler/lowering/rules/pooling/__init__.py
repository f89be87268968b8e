"""Pooling: windows, whole images, the places of the largest."""
