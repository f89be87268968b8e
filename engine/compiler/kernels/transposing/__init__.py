"""Transposed copies."""
