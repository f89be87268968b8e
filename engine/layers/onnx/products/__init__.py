"""Convolutions and matrix products, of bytes too."""
