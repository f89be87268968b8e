"""Winograd's convolution with 3 taps."""
