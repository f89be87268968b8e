"""Pooling with windows, and the mean over whole images."""
