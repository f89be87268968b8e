"""Convolutions and matrix products, also of 8-bit integers."""
