"""Pooling with windows, and reductions over whole images."""
