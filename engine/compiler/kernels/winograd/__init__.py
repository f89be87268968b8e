"""Winograd's convolution with 3 taps: blocking (whether, and in which blocks), transforms, stages, and the whole."""
