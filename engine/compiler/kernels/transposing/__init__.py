"""Kernel of transposed copies."""
